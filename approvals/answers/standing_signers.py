"""The standing policy that signs a write: the oldest one in force at its gate whose
limits hold and that has uses left, by the right of the person who made it.

That right is judged again at each use, as that of a person who signs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from approvals.gates.request_state import RequestState, policy_of
from approvals.models import ApprovalRequest, Decision, StandingPolicy
from approvals.permissions import (
    excluded,
    is_reviewer,
    own_principals,
    principals_kept,
)
from approvals.policies_in_force import usable_at
from checkpoints.db import query_cache
from checkpoints.ledger.commit import ConcurrentUpdate
from checkpoints.lines import Stretch
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.gates.verdicts import excludes
from orchestrator.engine.graphs.standing_policy import reason_against

NONE = "no standing policy is in force that may sign it"
BEYOND = "it is beyond the limits of a standing policy"
USED_UP = "a standing policy has no use left"
OF_MAKER = "who made a standing policy has decided this already"
BY_MAKER = "four eyes exclude who made a standing policy, for this is their edit"
REPEATED = (
    "a standing policy signed this on another line or in another run that this comes "
    "from, and none repeats that"
)


class StandingSigners:
    """The standing policies that may sign in the waiting requests of a run. What these
    have in common is read once.
    """

    def __init__(
        self,
        states: Sequence[RequestState],
        way: Callable[[], Sequence[Stretch]],
    ) -> None:
        """`way` returns the way to the line of these requests."""
        self._way = way
        self._tasks = {str(state.task) for state in states}
        self._usable: dict[tuple[str, str], list[StandingPolicy]] = {}
        self._principals: dict[int, list[str]] = {}
        self._excluded: dict[tuple[int, int], str] = {}
        self._elsewhere: set[str] | None = None

    def usable_for(self, request: ApprovalRequest) -> list[StandingPolicy]:
        """Return the standing policies that may sign in a request now, the oldest first:
        those of people who are its reviewers by their own right, and whom four eyes do
        not exclude. Two queries for each gate, and some for each maker.
        """
        place = (request.graph, request.policy.get("gate") or request.node)
        if place not in self._usable:
            self._usable[place] = usable_at(*place)
        usable: list[StandingPolicy] = []
        for policy in self._usable[place]:
            if self._is_reviewer(policy, request) and not self._is_excluded(
                policy, request
            ):
                usable.append(policy)
        return usable

    def _is_reviewer(self, policy: StandingPolicy, request: ApprovalRequest) -> bool:
        maker = policy.by_id
        if maker not in self._principals:
            self._principals[maker] = own_principals(policy.by)
        return is_reviewer(None, request, principals=self._principals[maker])

    def _is_excluded(self, policy: StandingPolicy, request: ApprovalRequest) -> bool:
        if not request.policy.get("four_eyes"):
            return False
        key = (policy.by_id, request.line)
        if key not in self._excluded:
            self._excluded[key] = excluded(policy.by, request)
        return bool(self._excluded[key])

    def was_signed_elsewhere(self, state: RequestState) -> bool:
        """Return whether a standing policy has signed for this task on another line of
        its run, or in a run from which this one comes: people who went back decide
        themselves.
        """
        if self._elsewhere is None:
            self._elsewhere = self._signed_elsewhere(state.request)
        return str(state.task) in self._elsewhere

    def _signed_elsewhere(self, request: ApprovalRequest) -> set[str]:
        way = self._way()
        # While a run that comes from no other is on its first line, it has no others.
        if len(way) == request.line == 1:
            return set()
        runs = {stretch.run for stretch in way}
        here = (request.run_id, request.line)
        values: list[UUID | str] = [*query_cache.padded(runs)]
        values += query_cache.padded(self._tasks)
        rows = query_cache.select(Decision, _query_elsewhere, *here, *values)
        return {decision.task for decision in rows if decision.standing}


def _query_elsewhere(run: UUID, line: int, *values: UUID | str) -> "QuerySet[Decision]":
    """Return the query for what policies signed in these runs for these tasks, except
    on this line.
    """
    runs = [value for value in values if isinstance(value, UUID)]
    tasks = [value for value in values if isinstance(value, str)]
    rows = Decision.objects.filter(
        run__in=runs, task__in=tasks, verdict="approve", by=None, receipt=None
    )
    return rows.exclude(run=run, line=line).order_by()


def signer_of(
    state: RequestState,
    row: PendingWrite,
    usable: Sequence[StandingPolicy],
    uses: Mapping[UUID, int],
) -> tuple[StandingPolicy | None, str]:
    """Return the first of these policies that signs this write, or None and the reason.
    The reason names neither people nor limits, because everyone who sees the run reads
    it. `uses` counts what was signed earlier in the same transaction.
    """
    reasons: list[str] = []
    for policy in usable:
        reason = _why_not(policy, state, row, uses.get(policy.id, 0))
        if not reason:
            return policy, ""
        reasons.append(reason)
    return None, "; ".join(dict.fromkeys(reasons)) or NONE


def _why_not(
    policy: StandingPolicy, state: RequestState, row: PendingWrite, uses: int
) -> str:
    """Return why a policy does not sign a write; empty if it does."""
    # A revision that only has another base keeps the author of what it proposes.
    if excludes(policy_of(state.request), row.author_id, policy.by_id):
        return BY_MAKER
    if _has_decided(policy.by_id, state, row):
        return OF_MAKER
    if policy.uses + uses >= policy.most_uses:
        return USED_UP
    is_beyond = reason_against(policy.limits, row.channel, read_value(row, "value"))
    return BEYOND if is_beyond else ""


def _has_decided(person: int, state: RequestState, row: PendingWrite) -> bool:
    """Return whether a person has decided this revision of a write, or another for them."""
    for decision in state.decisions:
        is_current = (decision.write, decision.revision) == (row.write, row.revision)
        people = (decision.by_id, decision.delegator_id)
        if is_current and not decision.by_policy and person in people:
            return True
    return False


def signed_columns(policy: StandingPolicy) -> dict[str, Any]:
    """Return the columns of a decision that say which policy signed, by whose right, and
    within which limits.
    """
    username = policy.by.get_username()
    return {
        "by_name": policy.name,
        "delegator": policy.by,
        "delegator_name": username,
        "checked": {
            "reads": [],
            "policy": policy.name,
            "standing": {
                "id": str(policy.id),
                "number": policy.number,
                "by": username,
                "limits": policy.limits,
                "begins": policy.begins_at.isoformat(),
                "ends": policy.ends_at.isoformat(),
            },
        },
    }


def require_reviewers(makers: Sequence[tuple[int, ApprovalRequest]]) -> None:
    """Lock the rights of these people until the open transaction ends. Raises
    `ConcurrentUpdate` if one of them no longer reviews the request paired with them.
    """
    principals = principals_kept({maker for maker, _ in makers})
    for maker, request in makers:
        if not is_reviewer(None, request, principals=principals.get(maker, [])):
            raise ConcurrentUpdate
