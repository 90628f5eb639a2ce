"""Which superstep's row stays in the timeline. Pure; the published table in the docs is this module.

Every superstep commits. A row that does not stay is the recovery point, which the next commit replaces.
"""

from collections.abc import Sequence

from orchestrator.engine.frozen import frozen

BEFORE = frozenset[str | None]({"before", "both"})
AFTER = frozenset[str | None]({"after", "both"})


@frozen
class Superstep:
    """What the policy looks at. `ran` and `next`: the `checkpoint=` of the nodes that ran and that run next."""

    number: int
    ran: Sequence[str | None]
    next: Sequence[str | None]
    asked: bool = False
    opens_gate: bool = False
    ends: bool = False


def stays(policy: str | int, step: Superstep) -> bool:
    """Whether the row of this superstep stays.

    `policy` is the graph's: "every_node", "explicit", "none", "manual", or n for `Interval(n)`. A node's own setting
    overrides it; one task that asks is enough. A superstep that opens a gate, and the end, always stay.
    """
    if step.asked or step.opens_gate or step.ends or not BEFORE.isdisjoint(step.next):
        return True
    own = set(step.ran)
    due = policy > 0 and step.number % policy == 0 if isinstance(policy, int) else policy == "every_node"
    return not AFTER.isdisjoint(own) or (None in own and due)
