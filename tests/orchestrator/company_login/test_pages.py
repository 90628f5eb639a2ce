"""People of a company sign in at its provider, which runs in a process of its own."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils.html import escape
from structlog.testing import capture_logs

from approvals.audit.words import sentence_of
from checkpoints.models import AuditLine
from orchestrator.company_login.provider import CompanyAdapter
from tests.support.cast import PASSWORD, UserFactory
from tests.support.oidc_provider import CompanyDirectory

SignIn = Callable[..., Any]


def person_of(client: Client) -> User | None:
    key = client.session.get("_auth_user_id")
    return User.objects.get(pk=key) if key else None


def groups_of(user: User | None) -> set[str]:
    assert user is not None
    return set(user.groups.values_list("name", flat=True))


def sentences(kind: str) -> list[str]:
    lines = AuditLine.objects.filter(kind=kind).order_by("id")
    return [sentence_of(line.kind, line.facts) for line in lines]


def test_a_person_of_the_company_signs_in_with_the_groups_of_the_directory(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person(
        "s-1", "acme-reviewers", "acme-canteen", preferred_username="rosa"
    )
    answer = sign_in("s-1", begin="/login/company/?next=/runs/")
    assert (answer.status_code, answer["Location"]) == (302, "/runs/")
    rosa = person_of(answer.browser)
    assert rosa is not None
    assert rosa.username == "rosa"
    assert not rosa.has_usable_password()
    assert not rosa.is_staff
    assert not rosa.is_superuser
    assert groups_of(rosa) == {"reviewer"}
    assert answer.browser.get("/runs/").status_code == 200


def test_who_is_in_no_group_that_counts_here_gets_no_account(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-2", "acme-canteen")
    answer = sign_in("s-2")
    assert answer.status_code == 403
    assert "in none of the groups" in answer.content.decode()
    assert person_of(answer.browser) is None
    assert not User.objects.exists()
    assert sentences("refused_company_login") == [
        "refused a log-in of the company for s-2: no group"
    ]


def test_a_group_that_was_taken_away_is_gone_at_the_next_log_in(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-3", "acme-reviewers", "acme-auditors")
    first = sign_in("s-3").browser
    person = person_of(first)
    assert person is not None
    person.groups.add(Group.objects.create(name="of-this-house"))
    assert groups_of(person) == {"reviewer", "auditor", "of-this-house"}
    assert "Read the whole audit log" in first.get("/account/").content.decode()

    directory.set_person("s-3", "acme-reviewers")
    assert person_of(sign_in("s-3").browser) == person
    assert groups_of(person) == {"reviewer", "of-this-house"}
    # Rights are read anew at each request, so the session from before lost them too.
    assert "Read the whole audit log" not in first.get("/account/").content.decode()

    directory.set_person("s-3")
    answer = sign_in("s-3")
    assert answer.status_code == 403
    assert groups_of(person) == {"of-this-house"}
    assert person_of(answer.browser) is None
    assert sentences("members_changed") == [
        "added s-3 to the group auditor and the group reviewer, by logging in",
        "added s-3 to the group of-this-house",
        "removed s-3 from the group auditor, by logging in",
        "removed s-3 from the group reviewer, by logging in",
    ]
    assert "bound the account s-3" in sentences("account_bound")[0]
    lines = AuditLine.objects.filter(kind__in=("members_changed", "account_bound"))
    assert list(lines.order_by("id").values_list("actor_name", flat=True)) == [
        *("s-3", "s-3", "", "s-3", "s-3")
    ]


def test_a_change_of_groups_is_of_who_logs_in_and_not_of_who_was_signed_in(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    root = Client()
    root.force_login(UserFactory.create(username="root", is_superuser=True))
    directory.set_person("s-14", "acme-reviewers")
    sign_in("s-14", root)
    line = AuditLine.objects.get(kind="members_changed")
    assert line.actor_name == "s-14"


def test_a_name_and_an_address_that_are_taken_never_lead_to_that_account(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    local = UserFactory.create(username="Rosa", email="rosa@example.org")
    directory.set_person(
        "s-4",
        "acme-reviewers",
        preferred_username="rosa",
        email="rosa@example.org",
        email_verified=True,
    )
    person = person_of(sign_in("s-4").browser)
    assert person is not None
    assert person.pk != local.pk
    assert person.username == "rosa-2"
    # Nor does another name at the provider lead away from it.
    directory.set_person("s-4", "acme-reviewers", preferred_username="Rosa")
    assert person_of(sign_in("s-4").browser) == person
    assert groups_of(local) == set()


def test_a_name_in_letters_that_look_latin_is_not_taken_for_another(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    UserFactory.create(username="admin")
    directory.set_person("s-16", "acme-reviewers", preferred_username="\u0430dmin")
    person = person_of(sign_in("s-16").browser)
    assert person is not None
    assert person.username == "admin-2"
    directory.set_person("s-17", "acme-reviewers", preferred_username="\u0438vana")
    person = person_of(sign_in("s-17").browser)
    assert person is not None
    assert person.username == "person"


def test_the_same_id_at_another_provider_is_another_person(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    from allauth.socialaccount.models import SocialAccount

    other = UserFactory.create(username="other")
    SocialAccount.objects.create(
        user=other, provider="https://login.example.org", uid="s-5"
    )
    directory.set_person("s-5", "acme-reviewers")
    assert person_of(sign_in("s-5").browser) != other


def test_an_account_that_is_switched_off_stays_out(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-6", "acme-reviewers")
    browser = sign_in("s-6").browser
    User.objects.update(is_active=False)
    assert browser.get("/runs/").status_code == 302
    answer = sign_in("s-6")
    assert answer.status_code == 403
    assert "switched off" in answer.content.decode()


def test_the_provider_is_asked_with_state_nonce_and_pkce(
    directory: CompanyDirectory,
) -> None:
    address = "/login/company/?scope=admin&auth_params=prompt%3Dnone&process=connect"
    answer = Client().get(address)
    query = parse_qs(urlsplit(answer["Location"]).query)
    assert answer["Location"].startswith(f"{directory.issuer}/oauth2/authorize?")
    assert query["response_type"] == ["code"]
    assert query["code_challenge_method"] == ["S256"]
    assert {*query} == {
        *("client_id", "redirect_uri", "response_type", "scope", "state", "nonce"),
        *("code_challenge", "code_challenge_method"),
    }
    assert set(query["scope"][0].split()) == {"openid", "profile", "email"}
    assert query["redirect_uri"] == ["http://testserver/login/company/done/"]


def test_the_way_back_of_another_browser_signs_nobody_in(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-7", "acme-reviewers")
    begun = Client().get("/login/company/")
    back = urlsplit(directory.answer_as("s-7", begun["Location"]))
    victim = Client()
    with capture_logs() as logged:
        answer = victim.get(f"{back.path}?{back.query}")
    assert answer.status_code == 400
    assert "no request of this session" in logged[0]["reason"]
    assert person_of(victim) is None
    assert not User.objects.exists()


def test_a_way_back_counts_once(directory: CompanyDirectory) -> None:
    directory.set_person("s-8", "acme-reviewers")
    browser = Client()
    begun = browser.get("/login/company/")
    back = urlsplit(directory.answer_as("s-8", begun["Location"]))
    assert browser.get(f"{back.path}?{back.query}").status_code == 302
    browser.post("/logout/")
    assert browser.get(f"{back.path}?{back.query}").status_code == 400
    assert person_of(browser) is None


def test_an_id_token_for_another_request_is_refused(
    directory: CompanyDirectory,
) -> None:
    directory.set_person("s-9", "acme-reviewers")
    browser = Client()
    address = browser.get("/login/company/")["Location"]
    nonce = parse_qs(urlsplit(address).query)["nonce"][0]
    back = urlsplit(directory.answer_as("s-9", address.replace(nonce, "another")))
    assert browser.get(f"{back.path}?{back.query}").status_code == 400
    assert not User.objects.exists()


@pytest.mark.parametrize("target", ["https://evil.example.org/", "//evil.example.org"])
def test_the_way_back_leads_to_this_site_alone(
    directory: CompanyDirectory, sign_in: SignIn, target: str
) -> None:
    directory.set_person("s-10", "acme-reviewers")
    assert sign_in("s-10", begin=f"/login/company/?next={target}")["Location"] == "/"


def test_who_turns_back_at_the_provider_reads_so(directory: CompanyDirectory) -> None:
    browser = Client()
    state = parse_qs(urlsplit(browser.get("/login/company/")["Location"]).query)
    answer = browser.get(
        f"/login/company/done/?error=access_denied&state={state['state'][0]}"
    )
    assert answer.status_code == 403
    assert "Acme did not let you in" in answer.content.decode()


def test_a_provider_that_does_not_answer_is_said_to(
    db: None, provider: CompanyDirectory, settings: Any
) -> None:
    settings.COUNTERSIGN = provider.settings(OIDC_ISSUER="http://127.0.0.1:9")
    answer = Client().get("/login/company/")
    assert answer.status_code == 502
    assert "Acme does not answer" in answer.content.decode()


def test_a_provider_of_another_name_is_not_trusted(
    db: None, provider: CompanyDirectory, settings: Any
) -> None:
    elsewhere = provider.issuer.replace("127.0.0.1", "localhost") + "/"
    settings.COUNTERSIGN = provider.settings(OIDC_ISSUER=elsewhere)
    with capture_logs() as logged:
        answer = Client().get("/login/company/")
    assert answer.status_code == 502
    assert logged[0]["reason"] == "the provider calls itself by another address"


def test_a_session_of_the_company_ends_after_its_hours(
    directory: CompanyDirectory, sign_in: SignIn, settings: Any
) -> None:
    directory.set_person("s-11", "acme-reviewers")
    session = sign_in("s-11").browser.session
    assert 12 * 3600 - 60 < session.get_expiry_age() <= 12 * 3600
    settings.COUNTERSIGN = directory.settings(COMPANY_SESSION_HOURS=9000.0)
    session = sign_in("s-11").browser.session
    # Never longer than those of people with a password.
    assert session.get_expiry_age() <= settings.SESSION_COOKIE_AGE


def test_the_sign_in_page_has_a_button_and_keeps_its_policy(
    directory: CompanyDirectory,
) -> None:
    answer = Client().get("/login/?next=/runs/")
    text = answer.content.decode()
    assert "Sign in with Acme" in text
    assert "/login/company/?next=%2Fruns%2F" in text
    assert 'name="password"' in text
    assert "form-action 'self';" in f"{answer['Content-Security-Policy']};"
    assert directory.issuer not in answer["Content-Security-Policy"]


def test_without_a_provider_nothing_is_there(db: None) -> None:
    assert "Sign in with" not in Client().get("/login/").content.decode()
    assert Client().get("/login/company/").status_code == 404
    assert Client().get("/login/company/done/?code=a&state=b").status_code == 404


def test_an_account_of_the_company_has_no_way_in_by_a_password(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-12", "acme-reviewers")
    person = person_of(sign_in("s-12").browser)
    assert person is not None
    person.set_password(PASSWORD)
    person.is_staff = True
    person.save()
    for path in ("/login/", "/login/local/", "/admin/login/"):
        browser = Client()
        answer = browser.post(path, {"username": "s-12", "password": PASSWORD})
        assert person_of(browser) is None, path
        assert "signs in with Acme" in answer.content.decode(), path


def test_without_local_log_ins_superusers_alone_have_a_form(
    directory: CompanyDirectory, settings: Any
) -> None:
    settings.COUNTERSIGN = directory.settings(LOCAL_LOGIN=False)
    UserFactory.create(username="olive", is_staff=True)
    UserFactory.create(username="root", is_superuser=True, is_staff=True)
    assert 'name="password"' not in Client().get("/login/").content.decode()
    browser = Client()
    form = browser.get("/login/local/")
    wrong = browser.post("/login/local/", {"username": "root", "password": "wrong"})
    for page in (form, wrong):
        assert 'name="password"' in page.content.decode()
        assert 'action="/login/local/"' in page.content.decode()
    for path in ("/login/", "/login/local/", "/admin/login/"):
        browser = Client()
        answer = browser.post(path, {"username": "olive", "password": PASSWORD})
        assert person_of(browser) is None, path
        assert "Only an administrator" in answer.content.decode(), path
        browser.post(path, {"username": "root", "password": PASSWORD})
        assert person_of(browser) is not None, path


def test_nothing_that_the_provider_says_is_stored_with_the_account(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    from allauth.account.models import EmailAddress
    from allauth.socialaccount.models import SocialAccount, SocialToken

    directory.set_person("s-13", "acme-reviewers", email="a@example.org")
    person = person_of(sign_in("s-13").browser)
    sign_in("s-13")
    assert SocialAccount.objects.get().extra_data == {}
    assert not SocialToken.objects.exists()
    assert not EmailAddress.objects.exists()
    assert person is not None
    assert person.email == "a@example.org"


def test_who_signs_after_the_session_ended_finds_the_button(
    directory: CompanyDirectory,
) -> None:
    answer = Client().post("/reviews/CLM-1/sign/", {"key": "a"})
    assert answer.status_code == 401
    assert "/login/company/?next=%2Freviews%2FCLM-1%2F" in answer.content.decode()


def test_who_signs_out_is_shown_the_way_out_at_the_provider(
    directory: CompanyDirectory, sign_in: SignIn
) -> None:
    directory.set_person("s-15", "acme-reviewers")
    browser = sign_in("s-15").browser
    page = browser.post("/logout/", follow=True)
    assert page.redirect_chain == [("/login/company/left/", 302)]
    assert person_of(browser) is None
    address = urlsplit(page.context["way_out"])
    assert escape(address.geturl()) in page.content.decode()
    assert address.geturl().startswith(f"{directory.issuer}/oauth2/end_session?")
    assert parse_qs(address.query) == {
        "client_id": ["countersign"],
        "post_logout_redirect_uri": ["http://testserver/login/"],
        "state": ["left"],
    }
    left = requests.get(address.geturl(), timeout=10)
    assert left.status_code == 200
    # The policy of the page stays as it is: it is a link.
    assert directory.issuer not in page["Content-Security-Policy"]
    # Who has a password here has no session elsewhere.
    local = Client()
    local.force_login(UserFactory.create(username="local"))
    assert local.post("/logout/")["Location"] == "/login/"


@pytest.mark.parametrize("address", ["", "javascript:alert(1)"])
def test_a_provider_without_a_way_out_is_named_without_a_link(
    directory: CompanyDirectory, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    published = {"end_session_endpoint": address} if address else {}
    monkeypatch.setattr(CompanyAdapter, "openid_config", published)
    page = Client().get("/login/company/left/").content.decode()
    assert "still be signed in with Acme" in page
    assert "way-out" not in page


def test_a_provider_that_does_not_answer_keeps_nobody_signed_in(
    db: None, provider: CompanyDirectory, settings: Any
) -> None:
    settings.COUNTERSIGN = provider.settings(OIDC_ISSUER="http://127.0.0.1:9")
    assert Client().get("/login/company/left/").status_code == 200
    settings.COUNTERSIGN = {}
    assert Client().get("/login/company/left/").status_code == 404


def test_the_admin_shows_which_accounts_are_bound_and_no_secrets(db: None) -> None:
    from allauth.account.models import EmailAddress
    from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken

    assert admin.site.is_registered(SocialAccount)
    for model in (SocialApp, SocialToken, EmailAddress):
        assert not admin.site.is_registered(model)
    browser = Client()
    root = UserFactory.create(username="root", is_superuser=True, is_staff=True)
    browser.force_login(root)
    text = browser.get("/admin/").content.decode()
    assert "/admin/socialaccount/socialaccount/" in text
    assert "socialapp" not in text
    assert browser.get("/admin/socialaccount/socialapp/").status_code == 404


def test_nobody_binds_an_account_to_another_person(db: None) -> None:
    from allauth.socialaccount.models import SocialAccount

    root = UserFactory.create(username="root", is_superuser=True, is_staff=True)
    row = SocialAccount.objects.create(user=root, provider="https://a.test", uid="r")
    browser = Client()
    browser.force_login(root)
    rows = "/admin/socialaccount/socialaccount/"
    facts = {"user": root.pk, "provider": row.provider, "extra_data": '{"a": 1}'}
    for page in (f"{rows}add/", f"{rows}{row.pk}/change/"):
        assert browser.post(page, facts | {"uid": "other"}).status_code == 403
    assert SocialAccount.objects.get().uid == "r"
    assert browser.get(f"{rows}{row.pk}/change/").status_code == 200
