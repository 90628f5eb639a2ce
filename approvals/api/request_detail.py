"""The writes of one request as people see them, each with its current value and its
verdicts so far.

The API calls it. It only reads, and does not check permissions.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.answers.policies import window_ends
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.gates.verdicts import Standing


@dataclass(frozen=True, slots=True)
class Slip:
    """One pending write at its newest revision.

    `current` is the value of the channel: for a bound base the value that the decision
    is bound to, else the value now. `shown` is the gate's description of the write,
    made when it was staged. `window_end` is when it may sign by itself. `decisions` are
    those on all revisions, oldest first.
    """

    row: PendingWrite
    value: Any
    current: Any
    bound: bool
    shows: dict[str, Any]
    shown: dict[str, Any]
    standing: Standing
    window_end: datetime | None
    decisions: tuple[Decision, ...]


def slips_of(request: ApprovalRequest) -> list[Slip]:
    """Return the writes of a request in order of position. Four queries at most,
    however many there are, and one for the end of windows.

    Raises `TamperedRow` and `WrongKey`: no row is shown that is not as it was written.
    """
    (request_state,) = load_states([request], protection_of(request.run))
    decisions: dict[UUID, list[Decision]] = {}
    for decision in Decision.objects.filter(request=request).order_by("event_seq"):
        decisions.setdefault(decision.write, []).append(decision)
    bases = [pending_writes.base_of(row) for row in request_state.writes]
    # The head state is read only where a write is not bound to an older value.
    now: dict[str, Any] = {}
    if not all(base.bound for base in bases):
        state = timeline.head_state(request.run_id)
        now = {**state["scratch"], **state["artifacts"]}
    ends = window_ends(request_state)
    slips = []
    for row, base in zip(request_state.writes, bases, strict=True):
        slip = Slip(
            row=row,
            value=sealed_columns.read_value(row, "value"),
            current=base.value if base.bound else now.get(row.channel),
            bound=base.bound,
            shows=base.shows,
            shown=sealed_columns.read_value(row, "shown") or {},
            standing=request_state.standings[row.write],
            window_end=ends.get(row.write),
            decisions=tuple(decisions.get(row.write, ())),
        )
        slips.append(slip)
    return slips
