"""The reasons for which a person may not sign the requests of a run."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from approvals import permissions
from approvals.models import ApprovalRequest
from approvals.views.people.claim_cards import keeps_out

NO_VERSION = (
    "Nobody can sign this now: the version of the graph that is here could not go on"
    " with the run."
)


def reasons_not_to_sign(
    user: Any,
    requests: Sequence[ApprovalRequest],
    *,
    refused: bool,
    despite_claims: bool = False,
) -> dict[UUID, str]:
    """Return for each request why this person may not sign it; empty if they may.
    `refused`: the version that is here could not go on with the run, so nobody may.
    `despite_claims`: that another person has taken it is no reason.

    The number of queries grows with those for whom they decide, and not with requests.
    """
    held = permissions.held_shown(user)
    exclusions = _Exclusions()
    reasons: dict[UUID, str] = {}
    for request in requests:
        reason = permissions.closed(request)
        # Reasons that hold for everybody come first.
        if not reason:
            reason = _reason_of_person(user, request, held, exclusions)
        if not reason and not despite_claims:
            reason = keeps_out(user, request)
        if not reason and refused:
            reason = NO_VERSION
        reasons[request.id] = reason
    return reasons


class _Exclusions:
    """Why four eyes exclude people, read once for each of them: from all requests of a
    line alike.
    """

    def __init__(self) -> None:
        self._by_person: dict[Any, str] = {}

    def of(self, person: Any, request: ApprovalRequest) -> str:
        """Return why four eyes exclude a person; empty if they do not."""
        if not request.policy.get("four_eyes"):
            return ""
        if person.pk not in self._by_person:
            self._by_person[person.pk] = permissions.excluded(person, request)
        return self._by_person[person.pk]


def _reason_of_person(
    user: Any,
    request: ApprovalRequest,
    held: permissions.HeldPrincipals,
    exclusions: _Exclusions,
) -> str:
    """Return why a person may not sign an open request, as
    `permissions.right_to_decide` judges it.
    """
    is_own = permissions.is_reviewer(user, request, principals=held.own)
    passed_on = permissions.delegators(request, held)
    if not is_own and not passed_on:
        return permissions.NOT_A_REVIEWER
    why_excluded = exclusions.of(user, request)
    if is_own or why_excluded:
        return why_excluded
    if any(not exclusions.of(person, request) for person in passed_on):
        return ""
    return permissions.excluded_delegators(passed_on)
