"""The password of the person who is signed in, asked for again before what a stranger
at their browser must not do. It is checked as at log-in, and never stored.
"""

from typing import cast

from django.apps import apps
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from approvals.views.people.fresh_login import use_up_fresh_login, way_to_log_in
from checkpoints.audit import lines as audit_log
from orchestrator.engine.errors import ConfirmationRequired
from orchestrator.engine.graphs.confirmation import PASSWORD

FIELD = "password"
"""The name of the field. Error reports hide it, and the sign-in page carries it nowhere."""
UNSET = (
    "Nothing was done: your account has no password here, as with single sign-on."
    " Ask an administrator to set one."
)
SIGN_IN_AGAIN = (
    "Nothing was done: sign in again with {name} first, then send this once more."
)
UNCHANGED = "Nothing was changed: that is not your password."
UNCHANGED_LOCKED = (
    "Nothing was changed: too many wrong passwords. Wait some minutes, then try again."
)


def is_own_password(request: HttpRequest, password: str) -> bool:
    """Return whether this is the password of the signed-in person. A wrong one counts
    as a failed log-in. Raises `ConfirmationRequired` where their account has none.
    """
    # Nothing that they type could be right, so it is no attempt.
    account = cast(AbstractBaseUser, request.user)
    if not account.has_usable_password():
        raise ConfirmationRequired(_why_no_password(request))
    person = authenticate(
        request, username=request.user.get_username(), password=password
    )
    is_own = person is not None and person.pk == request.user.pk
    if is_own:
        _forgive_failures(request)
    return is_own


def require_password(request: HttpRequest) -> None:
    """Raise `ConfirmationRequired` unless the password of the signed-in person is
    posted, or they have none and have just signed in once more, which is used up. A
    wrong one counts as a failed log-in, and leaves an audit line.
    """
    if use_up_fresh_login(request):
        return
    if is_own_password(request, request.POST.get(FIELD, "")):
        return
    # A throttle of log-ins would put its sign-in page in place of the account.
    is_locked = bool(getattr(request, "axes_locked_out", False))
    request.axes_locked_out = False  # type: ignore[attr-defined]
    audit_log.record("refused_confirmation", actor=request.user, method=PASSWORD)
    raise ConfirmationRequired(UNCHANGED_LOCKED if is_locked else UNCHANGED)


def _why_no_password(request: HttpRequest) -> str:
    way = way_to_log_in(request)
    return SIGN_IN_AGAIN.format(name=way["name"]) if way else UNSET


def _forgive_failures(request: HttpRequest) -> None:
    """Reset the failed log-ins of this person at this address, as their log-in does."""
    # A project may do without the throttle, or forgive nothing.
    if not apps.is_installed("axes") or not settings.AXES_RESET_ON_SUCCESS:
        return
    from axes.utils import reset

    # An address that is not known would reset those of all addresses.
    address = getattr(request, "axes_ip_address", None)
    if address:
        reset(ip=address, username=request.user.get_username())
