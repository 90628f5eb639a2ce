"""The deadline of a gate: when it is due, as the gate says it. Pure; the runner keeps it
with the request, and the database's clock decides when it has come.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from orchestrator.engine.errors import BROKEN, described
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, Gate


class GateDeadline(NamedTuple):
    """When a request is due (None: never), why the gate's function gave no deadline
    (empty if it did), the channels that the function read, and when the first tier
    acts.
    """

    at: datetime | None = None
    fault: str = ""
    reads: tuple[str, ...] = ()
    tier_at: datetime | None = None


def deadline_on(
    compiled: Compiled,
    gate: Gate,
    state: State,
    now: datetime,
) -> GateDeadline:
    """Return the deadline that a gate sets on this state. Never raises: a function that
    fails or returns no future moment leaves the gate shut, without a deadline.
    """
    if gate.deadline is None:
        return GateDeadline()
    if isinstance(gate.deadline, timedelta):
        return GateDeadline(now + gate.deadline)
    # The view records which channels the author's function reads.
    view, record = compiled.recorded_state(state)
    at: datetime | None = None
    try:
        answer = gate.deadline(now, view)
        fault = _fault_of(answer, now)
        if not fault:
            at = answer.astimezone(UTC)
    except BROKEN as error:
        fault = f"it failed: {described(error)}"
    if fault:
        fault = f"There is no deadline, for the gate's function gave none: {fault}"
    return GateDeadline(at, fault, tuple(sorted(record)))


def _fault_of(answer: Any, now: datetime) -> str:
    """Return why an answer of a gate's function is no deadline; empty if it is one."""
    if not isinstance(answer, datetime):
        return f"it returned {type(answer).__name__}, not a datetime"
    if answer.utcoffset() is None:
        return "it returned a moment without a time zone"
    if answer <= now:
        return f"it returned {answer.isoformat()}, which is not ahead of now"
    if answer > now + LONGEST_DEADLINE:
        return f"it returned {answer.isoformat()}, more than a hundred years ahead"
    return ""
