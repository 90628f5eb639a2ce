"""System checks of the log-in of a company: settings that belong together."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error

from checkpoints.conf import Conf, conf
from orchestrator.checks import check_settings
from orchestrator.company_login import arrival, certificates, configuration


def check_provider(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """orchestrator.E008: nobody could log in at the provider as it is configured, or
    nobody could log in at all.
    """
    # Settings that cannot be read are reported once, by their own check.
    if check_settings(app_configs):
        return []
    return [
        Error(
            fault,
            hint="docs/login.md says what belongs together",
            id="orchestrator.E008",
        )
        for fault in (*_faults_of_settings(conf()), *_faults_of_project())
    ]


def _faults_of_settings(current: Conf) -> Iterator[str]:
    if not current.company_issuer:
        if not current.local_login:
            yield "COUNTERSIGN['LOCAL_LOGIN'] is off, and there is no other log-in"
        return
    if current.oidc_issuer and not current.oidc_client_id:
        yield "COUNTERSIGN['OIDC_ISSUER'] is set, and OIDC_CLIENT_ID is not"
    if current.saml_issuer:
        yield from _faults_of_saml(current)
    if not current.company_groups:
        yield "COUNTERSIGN['COMPANY_GROUPS'] maps no group, so nobody could log in"
    for name in (
        "company_name",
        "company_groups_claim",
        "company_name_claim",
        "company_id_claim",
    ):
        if not getattr(current, name).strip():
            yield f"COUNTERSIGN['{name.upper()}'] is empty"


def _faults_of_saml(current: Conf) -> Iterator[str]:
    if current.oidc_issuer:
        yield "COUNTERSIGN['OIDC_ISSUER'] and SAML_ISSUER are set: name one provider"
    if find_spec("onelogin") is None:
        yield (
            "COUNTERSIGN['SAML_ISSUER'] is set, and a package is missing: "
            "pip install 'django-countersign[saml]'"
        )
    if not current.saml_sign_in_url:
        yield "COUNTERSIGN['SAML_ISSUER'] is set, and SAML_SIGN_IN_URL is not"
    try:
        certificates.of_provider()
    except (OSError, ValueError) as error:
        yield f"COUNTERSIGN['SAML_CERTIFICATE'] names no certificate in PEM: {error}"
    try:
        certificates.own_key()
    except (OSError, ValueError) as error:
        yield f"COUNTERSIGN['SAML_KEY'] names no key with its certificate: {error}"


def _faults_of_project() -> Iterator[str]:
    """Yield the faults of a host project's settings."""
    if getattr(settings, "SOCIALACCOUNT_ADAPTER", "") != configuration.ADAPTER:
        yield f"SOCIALACCOUNT_ADAPTER must be {configuration.ADAPTER!r}"
    if arrival.BACKEND not in settings.AUTHENTICATION_BACKENDS:
        yield f"AUTHENTICATION_BACKENDS must contain {arrival.BACKEND!r}"
    if getattr(settings, "SOCIALACCOUNT_STORE_TOKENS", False):
        yield "SOCIALACCOUNT_STORE_TOKENS must be off: tokens are never kept in rows"
    if settings.SESSION_COOKIE_SAMESITE == "Strict":
        yield (
            "SESSION_COOKIE_SAMESITE is 'Strict': who comes back from the provider "
            "would be unknown; set it to 'Lax'"
        )
