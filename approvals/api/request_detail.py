"""Reads: the writes of one request as people are shown them, each with its current value and its verdicts so far.

Pages and API call it. It never changes anything, and asks no permission.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.verdicts import Standing


@dataclass(frozen=True, slots=True)
class Slip:
    """One pending write at its newest revision.

    `current` is what the channel holds: for a bound base the value that the decision is bound to, else the value now.
    `shown` is what the gate said of it when it was staged. `decisions` are all of them, oldest first, of any revision.
    """

    row: PendingWrite
    value: Any
    current: Any
    bound: bool
    shows: dict[str, Any]
    shown: dict[str, Any]
    standing: Standing
    decisions: tuple[Decision, ...]


def slips_of(request: ApprovalRequest) -> list[Slip]:
    """The writes of a request in order of position. Four queries at most, whatever their number.

    Raises `TamperedRow` and `WrongKey`: nobody is shown what was not written.
    """
    (asked,) = load_states([request], protection_of(request.run))
    decisions: dict[UUID, list[Decision]] = {}
    for decision in Decision.objects.filter(request=request).order_by("event_seq"):
        decisions.setdefault(decision.write, []).append(decision)
    bases = [pending_writes.base_of(row) for row in asked.writes]
    now: dict[str, Any] = {}
    if not all(base.bound for base in bases):
        state = timeline.head_state(request.run_id)
        now = {**state["scratch"], **state["artifacts"]}
    return [
        Slip(
            row=row,
            value=sealed_columns.read_value(row, "value"),
            current=base.value if base.bound else now.get(row.channel),
            bound=base.bound,
            shows=base.shows,
            shown=sealed_columns.read_value(row, "shown") or {},
            standing=asked.standings[row.write],
            decisions=tuple(decisions.get(row.write, ())),
        )
        for row, base in zip(asked.writes, bases, strict=True)
    ]
