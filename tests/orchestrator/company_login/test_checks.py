"""Settings of the log-in of a company that do not belong together are named."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from django.core.exceptions import ImproperlyConfigured

from checkpoints.conf import conf
from orchestrator import environment
from orchestrator.company_login import checks
from orchestrator.company_login.checks import check_provider
from orchestrator.environment import Environment
from tests.support.oidc_provider import CompanyDirectory

WHOLE = CompanyDirectory("https://login.example.org").settings()


def faults() -> list[str]:
    return [str(fault.msg) for fault in check_provider(None)]


def test_a_whole_configuration_has_no_fault(settings: Any) -> None:
    settings.COUNTERSIGN = WHOLE
    assert faults() == []
    settings.COUNTERSIGN = {}
    assert faults() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"OIDC_CLIENT_ID": ""}, "OIDC_CLIENT_ID is not"),
        ({"COMPANY_GROUPS": {}}, "maps no group"),
        ({"COMPANY_NAME": " "}, "COUNTERSIGN['COMPANY_NAME'] is empty"),
        ({"OIDC_ISSUER": "", "LOCAL_LOGIN": False}, "there is no other log-in"),
    ],
)
def test_what_is_missing_is_named(
    settings: Any, changes: dict[str, Any], words: str
) -> None:
    settings.COUNTERSIGN = WHOLE | changes
    [fault] = faults()
    assert words in fault


def test_a_project_of_its_own_is_told_what_it_left_out(settings: Any) -> None:
    settings.COUNTERSIGN = WHOLE
    settings.SOCIALACCOUNT_ADAPTER = "theirs"
    settings.SESSION_COOKIE_SAMESITE = "Strict"
    settings.AUTHENTICATION_BACKENDS = ["theirs"]
    settings.SOCIALACCOUNT_STORE_TOKENS = True
    first, second, third, fourth = faults()
    assert "SOCIALACCOUNT_ADAPTER must be" in first
    assert "AUTHENTICATION_BACKENDS must contain" in second
    assert "SOCIALACCOUNT_STORE_TOKENS must be off" in third
    assert "SESSION_COOKIE_SAMESITE" in fourth


def test_what_is_missing_for_saml_is_named(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.COUNTERSIGN = {
        "SAML_ISSUER": "https://login.example.org/saml",
        "COMPANY_GROUPS": {"acme-claims": ["claims"]},
    }
    address, certificate = faults()
    assert "SAML_SIGN_IN_URL is not" in address
    assert "SAML_CERTIFICATE'] names no certificate" in certificate
    file = tmp_path / "provider.pem"
    file.write_text("no certificate")
    settings.COUNTERSIGN = settings.COUNTERSIGN | {
        "SAML_SIGN_IN_URL": "https://login.example.org/saml?idpid=C0",
        "SAML_CERTIFICATE": str(file),
        "OIDC_ISSUER": "https://login.example.org",
        "OIDC_CLIENT_ID": "countersign",
    }
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    both, package, certificate = faults()
    assert "name one provider" in both
    assert "pip install 'django-countersign[saml]'" in package
    assert str(file) not in certificate


def test_a_key_without_its_certificate_is_named(settings: Any, tmp_path: Path) -> None:
    pytest.importorskip("saml2", reason="the extra test is not installed")
    from tests.support.saml_provider import SamlCompany, certificate_of, pem_of

    company = SamlCompany(tmp_path)
    file = tmp_path / "own.pem"
    settings.COUNTERSIGN = company.settings(SAML_KEY=str(file))
    key, other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    curve = ec.generate_private_key(ec.SECP256R1())
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    for text, words in (
        (b"", "names no key"),
        (certificate_of(key), "names no key"),
        (pem_of(key), "names no key"),
        (pem_of(key) + certificate_of(other), "that of another key"),
        (pem_of(curve) + certificate_of(curve), "is not an RSA key"),
        (locked + certificate_of(key), "has a password"),
    ):
        file.write_bytes(text)
        [fault] = faults()
        assert words in fault
    file.write_bytes(pem_of(key) + certificate_of(key))
    assert faults() == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OIDC_ISSUER", "http://login.example.org", "must be an address of https"),
        ("OIDC_ISSUER", "https://a.example.org/" + "a" * 200, "at most 200 characters"),
        ("SAML_ISSUER", "two words", "without spaces"),
        ("SAML_SIGN_IN_URL", "http://login.example.org?a", "must be an address of"),
        ("OIDC_SCOPES", "profile", "openid among them"),
        ("COMPANY_GROUPS", {"a": ""}, "with 1 to 150 characters"),
        ("COMPANY_GROUPS", {"a": []}, "must be a name, or a list of names"),
        ("COMPANY_GROUPS", "reviewer", "must be a dictionary of names"),
        ("COMPANY_SESSION_HOURS", 0, "a number greater than 0"),
        ("LOCAL_LOGIN", "no", "must be true or false"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    settings: Any, name: str, value: Any, words: str
) -> None:
    settings.COUNTERSIGN = WHOLE | {name: value}
    with pytest.raises(Exception, match=words) as refusal:
        conf()
    assert f"COUNTERSIGN['{name}']" in str(refusal.value)


def test_a_secret_is_never_repeated(settings: Any) -> None:
    for name in ("OIDC_CLIENT_SECRET", "SCIM_TOKEN"):
        settings.COUNTERSIGN = WHOLE | {name: ["a-secret"]}
        with pytest.raises(Exception, match=name) as refusal:
            conf()
        assert "a-secret" not in str(refusal.value)
    settings.COUNTERSIGN = WHOLE
    assert WHOLE["OIDC_CLIENT_SECRET"] not in repr(conf())


def test_the_environment_gives_groups_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSIGN_OIDC_ISSUER", "https://login.example.org")
    monkeypatch.setenv(
        "COUNTERSIGN_COMPANY_GROUPS",
        '{"acme-claims": ["reviewer", "claims"], "b": "auditor"}',
    )
    variables = Environment.read()
    assert variables.has_company_login
    assert variables.countersign()["COMPANY_GROUPS"] == {
        "acme-claims": ("reviewer", "claims"),
        "b": ("auditor",),
    }
    monkeypatch.delenv("COUNTERSIGN_OIDC_ISSUER")
    assert not Environment.read().has_company_login


def test_the_environment_names_the_extra_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COUNTERSIGN_SAML_ISSUER", "https://login.example.org/saml")
    assert Environment.read().has_company_login
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(ImproperlyConfigured, match=r"django-countersign\[saml\]"):
        Environment.read()


def test_local_log_ins_are_not_turned_off_without_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COUNTERSIGN_LOCAL_LOGIN", "false")
    with pytest.raises(ImproperlyConfigured, match="COUNTERSIGN_LOCAL_LOGIN is off"):
        Environment.read()
    monkeypatch.setenv("COUNTERSIGN_OIDC_ISSUER", "https://login.example.org")
    assert not Environment.read().local_login
