"""A person without a password here, who has just signed in once more at the provider of
their company: that confirms one act, within minutes.

The mark is kept in the session. `orchestrator.company_login` makes it.
"""

from datetime import UTC, datetime
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from checkpoints.conf import conf

MARK = "countersign_fresh_login"
"""The key of the session."""
VALID_SECONDS = 300


def note_fresh_login(request: HttpRequest) -> None:
    """Note that the signed-in person has just shown the provider who they are."""
    request.session[MARK] = {
        "person": str(request.user.pk),
        "at": timezone.now().timestamp(),
    }


def fresh_until(request: HttpRequest) -> datetime | None:
    """Return until when a fresh log-in of this person confirms an act; None if there is
    none.
    """
    mark = request.session.get(MARK) or {}
    if mark.get("person") != str(request.user.pk):
        return None
    until = datetime.fromtimestamp(mark["at"] + VALID_SECONDS, tz=UTC)
    return until if timezone.now() < until else None


def spend_fresh_login(request: HttpRequest) -> None:
    """Let a fresh log-in no longer confirm anything."""
    request.session.pop(MARK, None)


def has_password(request: HttpRequest) -> bool:
    """Return whether the signed-in person has a password here."""
    return cast(AbstractBaseUser, request.user).has_usable_password()


def way_to_log_in(request: HttpRequest) -> dict[str, Any]:
    """Return where this person signs in once more: the name of the provider, and the
    address; empty if they cannot.
    """
    provider = conf()
    if not provider.oidc_issuer or has_password(request):
        return {}
    try:
        return {"name": provider.oidc_name, "url": reverse("company_confirm")}
    except NoReverseMatch:
        # A host project without the log-in of a company.
        return {}
