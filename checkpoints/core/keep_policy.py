"""The rule of which superstep's row stays in the timeline. Pure; the table in the docs
is this module.

Every superstep commits. A row that does not stay is the recovery point, which the next
commit replaces.
"""

from collections.abc import Sequence

from orchestrator.engine.frozen import frozen

BEFORE = frozenset[str | None]({"before", "both"})
AFTER = frozenset[str | None]({"after", "both"})


@frozen
class PolicySuperstep:
    """A superstep as the policy sees it. `ran` and `next`: the `checkpoint=` of the
    nodes that ran and that run next.
    """

    number: int
    ran: Sequence[str | None]
    next: Sequence[str | None]
    asks_checkpoint: bool = False
    opens_gate: bool = False
    ends: bool = False


def stays(policy: str | int, step: PolicySuperstep) -> bool:
    """Return whether the row of this superstep stays.

    `policy` is the graph's: "every_node", "explicit", "none", "manual", or n for
    `Interval(n)`. A node's setting overrides it; one task that requests its row is
    enough. A superstep that opens a gate, and the end, always stay.
    """
    if step.asks_checkpoint or step.opens_gate or step.ends:
        return True
    if not BEFORE.isdisjoint(step.next) or not AFTER.isdisjoint(step.ran):
        return True
    # The policy counts for nodes without a setting alone.
    if None not in step.ran:
        return False
    # `Interval(0)` is the same as manual.
    if isinstance(policy, int):
        return policy > 0 and step.number % policy == 0
    return policy == "every_node"
