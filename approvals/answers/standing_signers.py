"""The standing policy that signs a write: the oldest one in force at its gate whose
limits hold and that has uses left, by the right of the person who made it.

That right is judged anew at each use, as that of a person who signs.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, Decision, StandingPolicy
from approvals.permissions import excluded, is_reviewer, principals_kept
from approvals.policies_in_force import usable_at
from checkpoints import lines
from checkpoints.ledger.commit import ConcurrentUpdate
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.graphs.standing_policy import reason_against

NONE = "no standing policy is in force that may sign it"
REPEATED = (
    "a standing policy signed this on another line or in another run that this comes "
    "from, and none repeats that"
)


def usable_for(request: ApprovalRequest) -> list[StandingPolicy]:
    """Return the standing policies that may sign in a request now, the oldest first:
    those of people who are its reviewers by their own right, and whom four eyes do not
    exclude. Two queries, and some for each maker.
    """
    gate = request.policy.get("gate") or request.node
    usable: list[StandingPolicy] = []
    for policy in usable_at(request.graph, gate):
        if is_reviewer(policy.by, request) and not excluded(policy.by, request):
            usable.append(policy)
    return usable


def signer_of(
    state: RequestState,
    row: PendingWrite,
    usable: Sequence[StandingPolicy],
    uses: Mapping[UUID, int],
) -> tuple[StandingPolicy | None, str]:
    """Return the first of these policies that signs this write, or None and why none
    does. `uses` are those that come before it in the same transaction.
    """
    reasons: list[str] = []
    value = read_value(row, "value")
    for policy in usable:
        reason = reason_against(policy.limits, value)
        if policy.uses + uses.get(policy.id, 0) >= policy.most_uses:
            reason = "it has no use left"
        if _has_decided(policy.by_id, state, row):
            reason = "who made it has decided this already"
        if not reason:
            return policy, ""
        reasons.append(f"{policy.name} of {policy.by.get_username()}: {reason}")
    return None, "; ".join(reasons) or NONE


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
    """Keep the rights of these people until the transaction that is open ends. Raises
    `ConcurrentUpdate` if one of them is no reviewer of the request beside them any more.
    """
    principals = principals_kept({maker for maker, _ in makers})
    for maker, request in makers:
        if not is_reviewer(None, request, principals=principals.get(maker, [])):
            raise ConcurrentUpdate


def was_signed_elsewhere(state: RequestState) -> bool:
    """Return whether a standing policy has signed for this task on another line of its
    run, or in a run that this one comes from: who went back is asked themselves.
    """
    request = state.request
    runs = {stretch.run for stretch in lines.past(request.run_id, request.line)}
    rows = Decision.objects.filter(
        run__in=runs, task=str(state.task), verdict="approve", by=None, receipt=None
    )
    elsewhere = rows.exclude(run=request.run_id, line=request.line)
    return any(decision.standing for decision in elsewhere)
