"""Whoever comes back from the provider: signed in, or shown why not."""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from approvals.views.page import error_page
from approvals.views.people.fresh_login import note_fresh_login
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from orchestrator.company_login.accounts import (
    NotAdmitted,
    admitted_account,
    is_account_of,
)
from orchestrator.company_login.claims import (
    ClaimNames,
    CompanyPerson,
    UnusableClaims,
    person_in,
)
from orchestrator.views.home import restore_preferences

log = structlog.get_logger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"
"""Reads the person of a session at each request, and nobody whose account is off."""
NOT_SIGNED_IN = "Not signed in"
NOT_CONFIRMED = "Not confirmed"
SOMEBODY_ELSE = "You signed in there as somebody else, so nothing is confirmed."
SKEW_SECONDS = 60
"""Seconds by which the clocks of provider and installation may differ."""


def state_of(
    request: HttpRequest, nonce: str, *, is_confirmation: bool
) -> dict[str, Any]:
    """Return what the session keeps of a log-in that begins, until its answer comes."""
    data: dict[str, Any] = {
        "nonce": nonce,
        "begun_at": int(timezone.now().timestamp()),
    }
    if is_confirmation:
        data["confirms"] = str(request.user.pk)
    return data


def arrive(
    request: HttpRequest, claims: Mapping[str, Any], state: Mapping[str, Any]
) -> HttpResponse:
    """Return the answer to a person whom the provider has verified. `state` is what
    this session kept when it sent them there.
    """
    begun: Mapping[str, Any] = state.get("data") or {}
    if not _is_same_nonce(begun, claims):
        return failed(request, reason="it answers another request")
    try:
        person = _person(claims)
        is_confirmation = "confirms" in begun
        # Before anything of that person is written.
        if is_confirmation and not _is_whoever_asked(request, person, begun):
            return error_page(request, NOT_CONFIRMED, SOMEBODY_ELSE, status=403)
        account = admitted_account(person)
        if is_confirmation:
            return _confirm(request, claims, state)
    except UnusableClaims as fault:
        return unusable(request, fault)
    except NotAdmitted as refusal:
        return _not_admitted(request, refusal, person)
    return _sign_in(request, account, next_url=str(state.get("next", "")))


def _is_same_nonce(begun: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    """Return whether the answer is to the request of this session."""
    nonce = str(begun.get("nonce", ""))
    return bool(nonce) and secrets.compare_digest(
        nonce.encode(), str(claims.get("nonce", "")).encode()
    )


def _person(claims: Mapping[str, Any]) -> CompanyPerson:
    current = conf()
    names = ClaimNames(
        id=current.company_id_claim,
        name=current.company_name_claim,
        groups=current.company_groups_claim,
    )
    return person_in(claims, current.company_issuer, names)


def _is_whoever_asked(
    request: HttpRequest, person: CompanyPerson, begun: Mapping[str, Any]
) -> bool:
    """Return whether a confirmation comes from the person who asked for it, who must
    still be signed in.
    """
    is_signed_in = str(request.user.pk) == begun["confirms"]
    return is_signed_in and is_account_of(request.user, person)


def _not_admitted(
    request: HttpRequest, refusal: NotAdmitted, person: CompanyPerson
) -> HttpResponse:
    audit_log.record(
        "refused_company_login",
        actor=refusal.account,
        reason=refusal.reason,
        id=person.id,
    )
    return error_page(request, NOT_SIGNED_IN, str(refusal), status=403)


def _sign_in(request: HttpRequest, account: Any, *, next_url: str) -> HttpResponse:
    login(request, account, backend=BACKEND)
    _limit_session(request)
    answer = HttpResponseRedirect(safe_target(request, next_url))
    restore_preferences(answer, account)
    return answer


def _confirm(
    request: HttpRequest,
    claims: Mapping[str, Any],
    state: Mapping[str, Any],
) -> HttpResponse:
    """Note that the signed-in person has just shown who they are, and lead them back to
    what they are about to do. Raises `UnusableClaims` where the provider does not say
    when it last saw them: an old session of theirs would prove nothing.
    """
    begun: Mapping[str, Any] = state["data"]
    seen_at = claims.get("auth_time")
    if not isinstance(seen_at, int) or seen_at < begun["begun_at"] - SKEW_SECONDS:
        raise UnusableClaims(
            f"{conf().company_name} did not say that it has just asked who you are, so "
            "nothing is confirmed. Its administrator must let it ask anew, and say when "
            "(auth_time; AuthnInstant in SAML)."
        )
    if not note_fresh_login(request, begun["nonce"]):
        return failed(request, reason="it has come before")
    return HttpResponseRedirect(safe_target(request, str(state.get("next", ""))))


def _limit_session(request: HttpRequest) -> None:
    """End the session after the configured hours, however much it is used: until then a
    group that was taken away in the directory counts here.
    """
    hours = timedelta(hours=conf().company_session_hours)
    usual = timedelta(seconds=settings.SESSION_COOKIE_AGE)
    request.session.set_expiry(timezone.now() + min(hours, usual))


def safe_target(request: HttpRequest, target: str) -> str:
    """Return an address on this site; that of the first page for any other."""
    is_here = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return target if is_here else resolve_url(settings.LOGIN_REDIRECT_URL)


def unusable(request: HttpRequest, fault: UnusableClaims) -> HttpResponse:
    """Return the page for a person whom the provider has not described well enough."""
    return error_page(request, NOT_SIGNED_IN, str(fault), status=403)


def cancelled(request: HttpRequest) -> HttpResponse:
    """Return the page for a person to whom the provider said no."""
    text = f"{conf().company_name} did not let you in, or you turned back there."
    return error_page(request, NOT_SIGNED_IN, text, status=403)


def failed(request: HttpRequest, **facts: str) -> HttpResponse:
    """Return the page for an answer that does not belong to this session, or does not
    verify. The log has what is known of it.
    """
    log.warning("company_login_failed", **facts)
    text = (
        "The log-in took too long, or was begun in another window. Nothing was changed:"
        " go to the start and sign in again."
    )
    return error_page(request, NOT_SIGNED_IN, text, status=400)


def unreachable(request: HttpRequest) -> HttpResponse:
    """Return the page for a provider that does not answer."""
    text = (
        f"{conf().company_name} does not answer, or is not set up for this site."
        " Try again in a moment; who signs in here with a password still can."
    )
    return error_page(request, "Not available at the moment", text, status=502)
