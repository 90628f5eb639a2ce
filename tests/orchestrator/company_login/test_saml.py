"""People of a company sign in at its SAML provider. An answer signs nobody in that it did
not sign, for this site, to this request, just now.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from structlog.testing import capture_logs

from approvals.models import Decision
from orchestrator.company_login import throttle
from tests.support.confirmed_graphs import approval_of, gated
from tests.support.small_graphs import advanced

pytest.importorskip("onelogin", reason="the extra saml is not installed")
pytest.importorskip("saml2", reason="the extra test is not installed")

from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from lxml import etree
from onelogin.saml2.utils import OneLogin_Saml2_Utils
from saml2.response import IncorrectlySigned
from saml2.saml import NAMEID_FORMAT_EMAILADDRESS, NAMEID_FORMAT_TRANSIENT
from saml2.xmldsig import DIGEST_SHA1, SIG_RSA_SHA1
from xmlsec import Key, KeyFormat, SignatureContext, Transform, template, tree

from tests.support.saml_provider import (
    ISSUER,
    MISSING,
    XMLSEC,
    SamlCompany,
    certificate_of,
    pem_of,
)

pytestmark = pytest.mark.skipif(not XMLSEC, reason=MISSING)

SAML = "urn:oasis:names:tc:SAML:2.0:assertion"
PROTOCOL = "urn:oasis:names:tc:SAML:2.0:protocol"
SIGNATURE = "{http://www.w3.org/2000/09/xmldsig#}Signature"
XENC = "{http://www.w3.org/2001/04/xmlenc#}"
AGAIN = "/login/company/again/"
RSA = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
SignIn = Callable[..., Any]


@pytest.fixture
def key() -> Any:
    """The key of the provider, which a test may replace."""
    return RSA


@pytest.fixture
def company(tmp_path: Path, settings: Any, db: None, key: Any) -> SamlCompany:
    company = SamlCompany(tmp_path, key)
    settings.COUNTERSIGN = company.settings()
    company.set_person("s-1", "acme-reviewers")
    return company


@pytest.fixture
def asked(company: SamlCompany) -> Callable[..., str]:
    """Begin a log-in in a browser, and return the answer of the provider."""

    def asked(browser: Client, begin: str = "", **changes: Any) -> str:
        metadata = browser.get("/login/company/saml/metadata/").content.decode()
        begun = browser.get(begin or "/login/company/")
        assert begun.status_code == 302, begun.content.decode()
        changes = {"sub": "s-1", "metadata": metadata, **changes}
        return company.answer_as(address=begun["Location"], **changes)

    return asked


@pytest.fixture
def sign_in(asked: Callable[..., str]) -> SignIn:
    """Sign a person in, and return the answer to their way back."""

    def sign_in(browser: Client | None = None, begin: str = "", **changes: Any) -> Any:
        browser = browser or Client()
        return come_back(browser, asked(browser, begin, **changes))

    return sign_in


def come_back(browser: Client, answer: str) -> Any:
    page = browser.post("/login/company/saml/done/", {"SAMLResponse": answer})
    page.browser = browser
    return page


def person_of(browser: Client) -> User | None:
    key = browser.session.get("_auth_user_id")
    return User.objects.get(pk=key) if key else None


def groups_of(name: str) -> set[str]:
    user = User.objects.get(username=name)
    return set(user.groups.values_list("name", flat=True))


def test_a_person_of_the_company_signs_in_with_the_groups_of_the_directory(
    company: SamlCompany, asked: Callable[..., str]
) -> None:
    company.set_person(
        *("s-1", "acme-reviewers", "acme-canteen"),
        preferred_username="rosa",
        mail="rosa@example.org",
    )
    browser = Client()
    answer = asked(browser, "/login/company/?next=/runs/")
    # The page of another site posts it, without the cookie of the session.
    page = Client().post("/login/company/saml/", {"SAMLResponse": answer})
    assert answer in page.content.decode()
    assert 'action="/login/company/saml/done/"' in page.content.decode()
    assert "form-action 'self';" in f"{page['Content-Security-Policy']};"
    assert not page.cookies
    arrived = come_back(browser, answer)
    assert (arrived.status_code, arrived["Location"]) == (302, "/runs/")
    rosa = person_of(browser)
    assert rosa is not None
    assert (rosa.username, rosa.email) == ("rosa", "rosa@example.org")
    assert not rosa.has_usable_password()
    assert groups_of("rosa") == {"reviewer"}
    bound = SocialAccount.objects.get()
    assert (bound.provider, bound.uid, bound.user) == (ISSUER, "s-1", rosa)
    assert bound.extra_data == {}


def test_the_address_of_somebody_else_leads_to_no_account(
    company: SamlCompany, sign_in: SignIn
) -> None:
    local = User.objects.create_user("rosa", email="rosa@example.org")
    company.set_person("s-1", "acme-reviewers", mail="rosa@example.org", uid="rosa")
    assert person_of(sign_in().browser) != local


def test_a_group_that_was_taken_away_is_gone_and_signs_nothing(
    company: SamlCompany, sign_in: SignIn, settings: Any
) -> None:
    settings.COUNTERSIGN = company.settings(COMPANY_GROUPS={"acme-claims": ["claims"]})
    company.set_person("s-1", "acme-claims")
    reviewer = sign_in().browser
    run = advanced(gated())
    assert "/sign/" in reviewer.get(f"/reviews/{run.id}/").content.decode()
    company.set_person("s-1", "acme-canteen")
    answer = sign_in()
    assert answer.status_code == 403
    assert "in none of the groups" in answer.content.decode()
    assert reviewer.post(f"/reviews/{run.id}/sign/", approval_of(run)).status_code in (
        403,
        404,
    )
    assert not Decision.objects.exists()
    assert not Group.objects.get(name="claims").user_set.exists()


def changed(answer: str, old: str, new: str) -> str:
    text = b64decode(answer).decode()
    assert old in text
    return b64encode(text.replace(old, new).encode()).decode()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sign_assertion": False}, id="unsigned"),
        pytest.param(
            {"sign_assertion": False, "sign_response": True}, id="message signed alone"
        ),
        pytest.param(
            {"sign_alg": SIG_RSA_SHA1, "digest_alg": DIGEST_SHA1}, id="by SHA-1"
        ),
        pytest.param({"digest_alg": DIGEST_SHA1}, id="over a SHA-1"),
        pytest.param(
            {"sp_entity_id": "https://other.example.org"}, id="other audience"
        ),
        pytest.param(
            {"destination": "https://other.example.org/"}, id="sent elsewhere"
        ),
        pytest.param({"issuer": "https://other.example.org"}, id="other issuer"),
        pytest.param({"lifetime": -10}, id="expired"),
        pytest.param({"in_response_to": None}, id="to no request"),
        pytest.param({"in_response_to": "ONELOGIN_other"}, id="to another request"),
    ],
)
def test_an_answer_that_does_not_hold_signs_nobody_in(
    sign_in: SignIn, changes: dict[str, Any]
) -> None:
    answer = sign_in(**changes)
    assert answer.status_code == 400
    assert person_of(answer.browser) is None
    assert not User.objects.exists()


def test_an_answer_of_another_key_signs_nobody_in(
    company: SamlCompany, asked: Callable[..., str], tmp_path: Path, settings: Any
) -> None:
    browser = Client()
    answer = asked(browser)
    (tmp_path / "other").mkdir()
    other = SamlCompany(tmp_path / "other")
    settings.COUNTERSIGN = other.settings()
    assert come_back(browser, answer).status_code == 400
    # While it changes, the file has both.
    both = other.certificate.read_text() + company.certificate.read_text()
    other.certificate.write_text(both)
    assert come_back(browser, answer).status_code == 302


def test_an_answer_that_was_changed_on_the_way_signs_nobody_in(
    company: SamlCompany, asked: Callable[..., str]
) -> None:
    company.set_person("s-1", "acme-canteen")
    browser = Client()
    forged = changed(asked(browser), "acme-canteen", "acme-reviewers")
    assert come_back(browser, forged).status_code == 400
    # A request of one's own in the message, where only the assertion is signed.
    stolen = asked(Client())
    (own,) = parse_qs(urlsplit(browser.get("/login/company/")["Location"]).query)[
        "SAMLRequest"
    ]
    own_id = etree.fromstring(OneLogin_Saml2_Utils.decode_base64_and_inflate(own)).get(
        "ID"
    )
    theirs = etree.fromstring(b64decode(stolen)).get("InResponseTo")
    moved = changed(
        stolen, f'" InResponseTo="{theirs}" V', f'" InResponseTo="{own_id}" V'
    )
    assert come_back(browser, moved).status_code == 400
    assert not User.objects.exists()


def resigned(
    company: SamlCompany,
    answer: str,
    change: Callable[[Any], None],
    *,
    method: Any = Transform.RSA_SHA256,
    digest: Any = Transform.SHA256,
    last: Any = Transform.EXCL_C14N,
) -> str:
    """Return an answer whose assertion is changed, and then signed by the provider."""
    message = etree.fromstring(b64decode(answer))
    assertion = message.find(f"{{{SAML}}}Assertion")
    change(assertion)
    signature = template.create(assertion, Transform.EXCL_C14N, method, ns="ds")
    assertion.find(f"{{{SAML}}}Issuer").addnext(signature)
    uri = f"#{assertion.get('ID')}"
    reference = template.add_reference(signature, digest, uri=uri)
    template.add_transform(reference, Transform.ENVELOPED)
    template.add_transform(reference, last)
    tree.add_ids(assertion, ["ID"])
    context = SignatureContext()
    context.key = Key.from_file(str(company.key_file), KeyFormat.PEM)
    context.sign(signature)
    return b64encode(etree.tostring(message)).decode()


def leave_alone(assertion: Any) -> None:
    """Change nothing."""


def without_audience(assertion: Any) -> None:
    conditions = assertion.find(f"{{{SAML}}}Conditions")
    conditions.remove(conditions.find(f"{{{SAML}}}AudienceRestriction"))


def without(name: str) -> Callable[[Any], None]:
    def change(assertion: Any) -> None:
        for data in assertion.iter(f"{{{SAML}}}SubjectConfirmationData"):
            del data.attrib[name]

    return change


def beyond(assertion: Any) -> None:
    """Name an address that contains the right one."""
    for data in assertion.iter(f"{{{SAML}}}SubjectConfirmationData"):
        data.set("Recipient", data.get("Recipient") + "elsewhere/")


def late_beside_another(assertion: Any) -> None:
    """Let the time for this site be over, and not that of another confirmation."""
    ours = assertion.find(f".//{{{SAML}}}SubjectConfirmation")
    other = deepcopy(ours)
    ours.addprevious(other)
    del other.find(f"{{{SAML}}}SubjectConfirmationData").attrib["Recipient"]
    data = ours.find(f"{{{SAML}}}SubjectConfirmationData")
    data.set("NotOnOrAfter", "2020-01-01T00:00:00Z")


def for_who_has_a_key(assertion: Any) -> None:
    """Let only others bring the assertion to this site."""
    ours = assertion.find(f".//{{{SAML}}}SubjectConfirmation")
    other = deepcopy(ours)
    ours.addprevious(other)
    del other.find(f"{{{SAML}}}SubjectConfirmationData").attrib["Recipient"]
    ours.set("Method", "urn:oasis:names:tc:SAML:2.0:cm:holder-of-key")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (leave_alone, 302),
        (without_audience, 400),
        (without("InResponseTo"), 400),
        (without("Recipient"), 400),
        (without("NotOnOrAfter"), 400),
        (beyond, 400),
        (late_beside_another, 400),
        (for_who_has_a_key, 400),
    ],
)
def test_a_signed_assertion_must_say_for_whom_and_to_what_it_is(
    company: SamlCompany,
    asked: Callable[..., str],
    change: Callable[[Any], None],
    status: int,
) -> None:
    browser = Client()
    unsigned = asked(browser, sign_assertion=False)
    answer = come_back(browser, resigned(company, unsigned, change))
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("key", "method", "digest", "weak"),
    [
        (RSA, Transform.RSA_SHA1, Transform.SHA256, "rsa-sha1"),
        (RSA, Transform.RSA_SHA224, Transform.SHA256, "rsa-sha224"),
        (RSA, Transform.RSA_MD5, Transform.SHA256, "rsa-md5"),
        (RSA, Transform.RSA_RIPEMD160, Transform.SHA256, "rsa-ripemd160"),
        (CURVE, Transform.ECDSA_SHA1, Transform.SHA256, "ecdsa-sha1"),
        (CURVE, Transform.ECDSA_SHA224, Transform.SHA256, "ecdsa-sha224"),
        (RSA, Transform.RSA_SHA256, Transform.SHA1, "sha1"),
        (RSA, Transform.RSA_SHA256, Transform.SHA224, "sha224"),
        (RSA, Transform.RSA_SHA256, Transform.MD5, "md5"),
        (RSA, Transform.RSA_SHA256, Transform.RIPEMD160, "ripemd160"),
    ],
)
def test_a_weak_algorithm_is_refused_by_its_name(
    company: SamlCompany, asked: Callable[..., str], method: Any, digest: Any, weak: str
) -> None:
    browser = Client()
    unsigned = asked(browser, sign_assertion=False)
    answer = resigned(company, unsigned, leave_alone, method=method, digest=digest)
    with capture_logs() as logged:
        assert come_back(browser, answer).status_code == 400
    assert logged[0]["reason"].endswith(f"#{weak}")
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("key", "method", "digest"),
    [
        (RSA, Transform.RSA_SHA384, Transform.SHA384),
        (RSA, Transform.RSA_SHA512, Transform.SHA512),
        (CURVE, Transform.ECDSA_SHA256, Transform.SHA256),
        (CURVE, Transform.ECDSA_SHA512, Transform.SHA512),
    ],
)
def test_a_strong_algorithm_signs_in(
    company: SamlCompany, asked: Callable[..., str], method: Any, digest: Any
) -> None:
    browser = Client()
    unsigned = asked(browser, sign_assertion=False)
    answer = resigned(company, unsigned, leave_alone, method=method, digest=digest)
    assert come_back(browser, answer).status_code == 302


def test_a_signature_asks_for_no_other_transform(
    company: SamlCompany, asked: Callable[..., str]
) -> None:
    browser = Client()
    unsigned = asked(browser, sign_assertion=False)
    answer = resigned(company, unsigned, leave_alone, last=Transform.C14N)
    with capture_logs() as logged:
        assert come_back(browser, answer).status_code == 400
    assert logged[0]["reason"].endswith("xml-c14n-20010315")


def wrapped(answer: str, place: str) -> str:
    """Return an answer in which a forged assertion stands where the signed one stood,
    which is kept elsewhere with its signature.
    """
    message = etree.fromstring(b64decode(answer))
    signed = message.find(f"{{{SAML}}}Assertion")
    text = etree.tostring(signed).decode().replace("acme-canteen", "acme-reviewers")
    forged = etree.fromstring(text)
    signature = forged.find(SIGNATURE)
    if place != "copied signature":
        forged.remove(signature)
        forged.set("ID", "forged")
    message.replace(signed, forged)
    if place == "before":
        forged.addprevious(signed)
    elif place == "behind":
        forged.addnext(signed)
    elif place == "extensions":
        extensions = etree.Element(f"{{{PROTOCOL}}}Extensions")
        extensions.append(signed)
        message.find(f"{{{SAML}}}Issuer").addnext(extensions)
    elif place == "advice":
        advice = etree.Element(f"{{{SAML}}}Advice")
        advice.append(signed)
        forged.find(f"{{{SAML}}}Conditions").addnext(advice)
    elif place == "object":
        holder = etree.SubElement(signature, f"{SIGNATURE[:-9]}Object")
        signed.remove(signed.find(SIGNATURE))
        holder.append(signed)
        forged.find(f"{{{SAML}}}Issuer").addnext(signature)
    return b64encode(etree.tostring(message)).decode()


@pytest.mark.parametrize(
    "place",
    ["copied signature", "before", "behind", "extensions", "advice", "object"],
)
def test_a_signed_assertion_vouches_for_no_other(
    company: SamlCompany, asked: Callable[..., str], place: str
) -> None:
    company.set_person("s-1", "acme-canteen")
    browser = Client()
    answer = come_back(browser, wrapped(asked(browser), place))
    assert answer.status_code == 400
    assert not User.objects.exists()


def test_an_answer_counts_once_and_in_the_browser_that_asked(
    asked: Callable[..., str],
) -> None:
    browser = Client()
    answer = asked(browser)
    with capture_logs() as logged:
        assert come_back(Client(), answer).status_code == 400
    assert logged[0]["event"] == "company_login_failed"
    assert "this session has not asked" in logged[0]["reason"]
    assert come_back(browser, answer).status_code == 302
    browser.post("/logout/")
    assert come_back(browser, answer).status_code == 400
    assert person_of(browser) is None


def test_who_posts_answers_too_often_has_to_wait(
    company: SamlCompany, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "MOST_VISITS", 2)
    statuses = [come_back(Client(), "~").status_code for _ in range(3)]
    assert statuses == [400, 400, 429]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "~",
        "a" * 5,
        b64encode(b"<a/>").decode(),
        b64encode(b"<a").decode(),
        b64encode(
            b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'
        ).decode(),
        "a" * 600_000,
    ],
)
def test_what_is_no_answer_is_refused(company: SamlCompany, answer: str) -> None:
    page = come_back(Client(), answer)
    assert page.status_code == 400
    assert "root:" not in page.content.decode()


@pytest.mark.parametrize(
    "name_format", [NAMEID_FORMAT_TRANSIENT, NAMEID_FORMAT_EMAILADDRESS]
)
def test_an_id_that_does_not_stay_makes_no_account(
    company: SamlCompany, sign_in: SignIn, settings: Any, name_format: str
) -> None:
    answer = sign_in(name_format=name_format)
    assert answer.status_code == 403
    assert "persistent NameID" in answer.content.decode()
    assert not User.objects.exists()
    # An attribute may be the id instead.
    settings.COUNTERSIGN = company.settings(COMPANY_ID_CLAIM="employee")
    company.set_person("s-1", "acme-reviewers", employee="e-17")
    assert sign_in(name_format=name_format).status_code == 302
    assert SocialAccount.objects.get().uid == "e-17"


def test_groups_that_the_provider_left_out_are_not_taken_for_none(
    company: SamlCompany, sign_in: SignIn
) -> None:
    link = "http://schemas.microsoft.com/claims/groups.link"
    company.set_person("s-1", **{link: "https://graph.example.org/"})
    answer = sign_in()
    assert answer.status_code == 403
    assert "in more groups" in answer.content.decode()


def test_a_fresh_log_in_confirms_one_signature(
    company: SamlCompany, sign_in: SignIn, settings: Any
) -> None:
    settings.COUNTERSIGN = company.settings(COMPANY_GROUPS={"acme-claims": ["claims"]})
    company.set_person("s-1", "acme-claims")
    browser = sign_in().browser
    (message,) = parse_qs(urlsplit(browser.get(AGAIN)["Location"]).query)["SAMLRequest"]
    assert b'ForceAuthn="true"' in OneLogin_Saml2_Utils.decode_base64_and_inflate(
        message
    )
    first, second = (advanced(gated(name, confirm="password")) for name in "ab")
    stale = sign_in(browser, AGAIN, asked_at=1_700_000_000)
    assert stale.status_code == 403
    assert "AuthnInstant" in stale.content.decode()
    assert (
        browser.post(f"/reviews/{first.id}/sign/", approval_of(first)).status_code
        == 403
    )

    back = sign_in(browser, f"{AGAIN}?next=/reviews/{first.id}/")
    assert back["Location"] == f"/reviews/{first.id}/"
    assert (
        browser.post(f"/reviews/{first.id}/sign/", approval_of(first)).status_code
        == 302
    )
    assert Decision.objects.get().confirmed_by == "log-in"
    answer = browser.post(f"/reviews/{second.id}/sign/", approval_of(second))
    assert answer.status_code == 403


@pytest.fixture
def own_key(tmp_path: Path, company: SamlCompany, settings: Any) -> Path:
    """A key of this site, configured."""
    key = rsa.generate_private_key(65537, 2048)
    file = tmp_path / "own.pem"
    file.write_bytes(pem_of(key) + certificate_of(key))
    settings.COUNTERSIGN = company.settings(SAML_KEY=str(file))
    return file


def test_a_request_is_signed_by_the_key_of_this_site(
    company: SamlCompany, own_key: Path, sign_in: SignIn, settings: Any
) -> None:
    company.wants_signed = True
    answer = sign_in()
    assert answer.status_code == 302
    settings.COUNTERSIGN = company.settings()
    with pytest.raises(IncorrectlySigned):
        sign_in()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 302),
        ({"sign_response": True}, 302),
        ({"sign_assertion": False}, 400),
        ({"sign_assertion": False, "sign_response": True}, 400),
        ({"lifetime": -10}, 400),
        ({"in_response_to": "ONELOGIN_other"}, 400),
        ({"digest_alg": DIGEST_SHA1}, 400),
    ],
)
def test_an_encrypted_assertion_is_judged_like_any_other(
    own_key: Path, asked: Callable[..., str], changes: dict[str, Any], status: int
) -> None:
    browser = Client()
    answer = asked(browser, encrypt_assertion=True, **changes)
    assert b"EncryptedAssertion" in b64decode(answer)
    assert b"acme-reviewers" not in b64decode(answer)
    assert come_back(browser, answer).status_code == status


def test_an_encrypted_assertion_is_refused_without_the_key(
    company: SamlCompany, own_key: Path, asked: Callable[..., str], settings: Any
) -> None:
    browser = Client()
    answer = asked(browser, encrypt_assertion=True)
    settings.COUNTERSIGN = company.settings()
    assert come_back(browser, answer).status_code == 400


def test_the_key_of_an_encrypted_assertion_may_lie_beside_it(
    own_key: Path, asked: Callable[..., str]
) -> None:
    browser = Client()
    message = etree.fromstring(b64decode(asked(browser, encrypt_assertion=True)))
    encrypted = message.find(f"{{{SAML}}}EncryptedAssertion")
    (key,) = encrypted.iter(f"{XENC}EncryptedKey")
    information = key.getparent()
    encrypted.append(key)
    place = {"Type": f"{XENC[1:-1]}EncryptedKey", "URI": f"#{key.get('Id')}"}
    etree.SubElement(information, f"{SIGNATURE[:-9]}RetrievalMethod", place)
    answer = b64encode(etree.tostring(message)).decode()
    assert come_back(browser, answer).status_code == 302


def test_no_file_of_this_host_is_read_for_who_names_it(
    own_key: Path, asked: Callable[..., str], tmp_path: Path
) -> None:
    browser = Client()
    message = etree.fromstring(b64decode(asked(browser, encrypt_assertion=True)))
    value = message.findall(f".//{XENC}CipherValue")[-1]
    file = tmp_path / "cipher"
    file.write_bytes(b64decode(value.text))
    etree.SubElement(value.getparent(), f"{XENC}CipherReference", {"URI": str(file)})
    value.getparent().remove(value)
    answer = b64encode(etree.tostring(message)).decode()
    assert come_back(browser, answer).status_code == 400


def by_rsa_1_5(text: str) -> str:
    return text.replace("xmlenc#rsa-oaep-mgf1p", "xmlenc#rsa-1_5")


def without_type(text: str) -> str:
    return text.replace('Type="http://www.w3.org/2001/04/xmlenc#Element"', "")


def without_key(text: str) -> str:
    return re.sub(r"<([^:<]+:)?EncryptedKey.*EncryptedKey>", "", text, flags=re.DOTALL)


def with_other_content(text: str) -> str:
    return re.sub(r"(CipherValue>)[^<]{8}", r"\1AAAAAAAA", text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (by_rsa_1_5, "it is encrypted by rsa-1_5"),
        (without_type, "SAML Response must contain 1 assertion"),
        (without_key, "it cannot be decrypted"),
        (with_other_content, "it cannot be decrypted"),
    ],
)
def test_what_cannot_be_decrypted_is_refused(
    own_key: Path, asked: Callable[..., str], change: Callable[[str], str], reason: str
) -> None:
    browser = Client()
    text = b64decode(asked(browser, encrypt_assertion=True)).decode()
    with capture_logs() as logged:
        page = come_back(browser, b64encode(change(text).encode()).decode())
    assert page.status_code == 400
    assert logged[0]["reason"] == reason


def test_the_pages_are_there_for_the_provider_that_is_configured(
    company: SamlCompany, settings: Any
) -> None:
    metadata = Client().get("/login/company/saml/metadata/").content.decode()
    assert "http://testserver/login/company/saml/" in metadata
    assert "validUntil" not in metadata
    assert "Sign in with Acme" in Client().get("/login/").content.decode()
    # No page of OpenID Connect.
    assert Client().get("/login/company/done/?code=a&state=b").status_code == 404
    company.certificate.unlink()
    assert Client().get("/login/company/").status_code == 502
    settings.COUNTERSIGN = {}
    assert Client().get("/login/company/saml/metadata/").status_code == 404
    for path in ("", "done/"):
        page = Client().post(f"/login/company/saml/{path}", {"SAMLResponse": "a"})
        assert page.status_code == 404
