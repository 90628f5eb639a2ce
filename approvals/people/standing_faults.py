"""Examines whether decisions of standing policies come from existing policies, from the
people they name, and stay within their limits. Part of the examination of a run; reads
only.
"""

from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from approvals.models import Decision, StandingPolicy
from approvals.policies_in_force import BROUGHT_BACK, those_brought_back
from checkpoints.core.tombstone import holds_tombstone
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import Fault, Subject
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.standing_policy import reason_against


def faults_of_standing_policies(
    subject: Subject, decisions: Sequence[Decision]
) -> Iterator[Fault]:
    """Yield a fault for each decision of a standing policy that does not exist as
    stated, or that signed something beyond its limits. Two queries, none without such a
    decision.
    """
    # Policies of another installation stay there.
    if subject.run.imported:
        return
    signed = [row for row in decisions if row.standing]
    ids = {UUID(row.standing["id"]) for row in signed}
    if not ids:
        return
    by_id = StandingPolicy.objects.in_bulk(list(ids))
    brought_back = those_brought_back(list(by_id.values()))
    for row in signed:
        policy = by_id.get(UUID(row.standing["id"]))
        reason = _fault_of_policy(row, policy, brought_back)
        if not reason and not subject.seal_of(row):
            reason = _fault_of_value(row)
        if reason:
            yield subject.fault(row, reason)


def _fault_of_policy(
    row: Decision,
    policy: StandingPolicy | None,
    brought_back: Collection[StandingPolicy],
) -> str:
    """Return what is wrong with the policy that signed; empty if nothing is."""
    if policy is None:
        return f"has no standing policy {row.standing['id']}"
    fault = fault_of(policy, PLAIN)
    if fault is not None:
        return f"was made by a standing policy that does not verify: {fault.reason}"
    is_same = policy.by_id == row.delegator_id and policy.name == row.by_name
    if not is_same or policy.limits != row.standing["limits"]:
        return "was made by another standing policy than it says"
    if policy in brought_back:
        return f"was made by a standing policy that does not verify: {BROUGHT_BACK}"
    return ""


def _fault_of_value(row: Decision) -> str:
    """Return why the value that was signed is not within the recorded limits; empty if
    it is, or can no longer be read.
    """
    try:
        value = read_value(row, "final_value")
    except CountersignError:
        return ""
    if holds_tombstone(value):
        return ""
    why = reason_against(row.standing["limits"], row.channel, value)
    return f"is not within the limits of its policy: {why}" if why else ""
