"""The reasons for which a person may not sign the requests of a run."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from approvals import permissions
from approvals.models import ApprovalRequest
from approvals.views.claim_cards import keeps_out

NO_VERSION = (
    "Nobody can sign this now: the version of the graph that is here could not go on"
    " with the run."
)


def reasons_not_to_sign(
    user: Any,
    requests: Sequence[ApprovalRequest],
    *,
    refused: bool,
) -> dict[UUID, str]:
    """Return for each request why this person may not sign it; empty if they may.
    `refused`: the version that is here could not go on with the run, so nobody may. A
    constant number of queries.
    """
    reviewed = _requests_reviewed_by(user, requests)
    excluded = _exclusion_by_four_eyes(user, requests, reviewed)
    reasons: dict[UUID, str] = {}
    for request in requests:
        reason = _reason_not_to_sign(request, reviewed, excluded)
        if not reason:
            reason = keeps_out(user, request)
        if not reason and refused:
            reason = NO_VERSION
        reasons[request.id] = reason
    return reasons


def _requests_reviewed_by(user: Any, requests: Sequence[ApprovalRequest]) -> set[UUID]:
    """Return the requests that have this person among their reviewers."""
    principals = set(permissions.principals_shown(user))
    reviewed: set[UUID] = set()
    for request in requests:
        if not principals.isdisjoint(request.policy["reviewers"]):
            reviewed.add(request.id)
    return reviewed


def _exclusion_by_four_eyes(
    user: Any,
    requests: Sequence[ApprovalRequest],
    reviewed: Collection[UUID],
) -> str:
    """Return why four eyes exclude this person; empty if they do not."""
    for request in requests:
        if request.id in reviewed and request.policy.get("four_eyes"):
            # They exclude a person from all requests of a line alike.
            return permissions.excluded(user, request)
    return ""


def _reason_not_to_sign(
    request: ApprovalRequest,
    reviewed: Collection[UUID],
    excluded: str,
) -> str:
    # Reasons that hold for everybody come first.
    closed = permissions.closed(request)
    if closed:
        return closed
    if request.id not in reviewed:
        return "You are not one of its reviewers."
    return excluded if request.policy.get("four_eyes") else ""
