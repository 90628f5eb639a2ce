"""The confirmation that is posted with a review: the password of the person who signs,
checked as at a log-in and kept nowhere, or the assertion of their passkey. Who has no
password has just signed in once more at their provider.
"""

import json
from uuid import UUID

from django.http import HttpRequest

from approvals.confirmation import Confirmation, PostedAssertion, Site
from approvals.views.people.fresh_login import fresh_until, session_of
from approvals.views.people.own_password import FIELD, is_own_password
from approvals.views.shown_review import Review
from checkpoints.audit import lines as audit_log
from checkpoints.core.strict_json import parse_strict
from orchestrator.engine.errors import ConfirmationRequired
from orchestrator.engine.graphs.confirmation import LOG_IN, PASSKEY, PASSWORD

LONGEST_ASSERTION = 20_000
"""The most characters of what a passkey answers."""
WRONG = "Nothing was signed: that is not your password. Everything you chose is kept."
LOCKED = (
    "Nothing was signed: too many wrong passwords. Wait some minutes, then sign again."
    " Everything you chose is kept."
)


def posted_confirmation(request: HttpRequest, shown: Review) -> Confirmation | None:
    """Return how the person has confirmed what they post; None if they have not, or if
    nothing on the page asks for it.

    Raises `ConfirmationRequired` for a wrong password, which counts as a failed log-in
    and leaves an audit line, and where the account has none. What a passkey signed is
    verified when it is signed.
    """
    if shown.confirm == PASSKEY:
        answered = _posted_assertion(request)
        if answered is not None:
            return answered
    if shown.takes_password and fresh_until(request) is not None:
        session = session_of(request)
        return Confirmation(request.user.pk, LOG_IN, session=session)
    password = request.POST.get(FIELD, "")
    # What asks for a passkey is refused where it is signed, if it is among the choices.
    if not shown.takes_password or not password:
        return None
    if is_own_password(request, password):
        return Confirmation(request.user.pk, PASSWORD)

    audit_log.record(
        "refused_confirmation",
        actor=request.user,
        run=shown.run.id,
        graph=shown.run.graph,
        method=PASSWORD,
    )
    # A throttle of log-ins would put its sign-in page in place of the review.
    is_locked = bool(getattr(request, "axes_locked_out", False))
    request.axes_locked_out = False  # type: ignore[attr-defined]
    raise ConfirmationRequired(LOCKED if is_locked else WRONG)


def _posted_assertion(request: HttpRequest) -> Confirmation | None:
    """Return what the script has put into the form; None if that is nothing, or cannot
    be read.
    """
    text = request.POST.get("assertion", "")
    if not text or len(text) > LONGEST_ASSERTION:
        return None
    try:
        posted = parse_strict(text)
        assertion = PostedAssertion(
            challenge=UUID(posted["challenge"]),
            session=session_of(request),
            site=site_of(request),
            credential=json.dumps(posted["credential"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Confirmation(request.user.pk, PASSKEY, assertion)


def site_of(request: HttpRequest) -> Site:
    """Return the site at which a browser sees this page."""
    # Only hosts of ALLOWED_HOSTS come this far.
    origin = f"{request.scheme}://{request.get_host()}"
    return Site(rp_id=request.get_host().partition(":")[0], origin=origin)
