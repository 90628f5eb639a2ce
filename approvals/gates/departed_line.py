"""The line that a run is on, where it departed from an older checkpoint: what it has before it, why it was
begun, and what people had decided at the same places before. Reads; nothing where a run never departed.
"""

from collections.abc import Collection, Sequence

from approvals.gates.repeated_effects import repeats_of
from approvals.gates.request_state import RequestState
from approvals.models import Decision, RequestStatus
from checkpoints import lines, timeline
from checkpoints.models import PendingWrite, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.compile import Compiled
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.node import Edge

Place = tuple[str, int]
"""A task, and the position of a write in it: the same on every line."""


@frozen
class Ahead:
    """What a line of a run has before it: `stops`, the nodes that it does not start without somebody's yes; `again`,
    those that it does start although what they do has happened on the line that it departed from. Where a
    patch waits for people, `pending` are the edges whose tokens go on once it is signed; `patches` says how many gates
    have to sign it, `others` whether more is asked of people at that point.
    """

    stops: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    pending: tuple[Edge, ...] = ()
    patches: int = 0
    others: bool = False


NOTHING_AHEAD = Ahead()


@frozen
class DepartedLine:
    """`reason` is why it was begun; `before` are earlier decisions by place."""

    ahead: Ahead = NOTHING_AHEAD
    reason: str = ""
    before: dict[Place, list[Decision]] | None = None

    def before_of(self, row: PendingWrite) -> list[Decision]:
        """What people had decided of such a write."""
        return (self.before or {}).get((row.task, row.position), [])


def departed_line(run: Run, compiled: Compiled | None, states: Sequence[RequestState]) -> DepartedLine:
    """The run's line. No query where it never departed; else three. Two more while a patch waits for people, or what a
    migration made of a guarded channel.

    Raises `TamperedRow` or `WrongKey` where a row is not as it was written.
    """
    row = lines.line_row(run, run.line) if run.line > 1 or run.origin_checkpoint else None
    waiting = [one.request for one in states if one.request.status == RequestStatus.OPEN]
    patches = sum(1 for request in waiting if request.node == PATCH)
    stops = frozenset(row.stops if row else ())
    again = frozenset(node for repeats in repeats_of([row] if row else []).values() for node in repeats.again)
    ahead = Ahead(stops, again)
    if patches and compiled is not None:
        frontier = Frontier.from_json(timeline.head_document(run.id)["frontier"])
        others = any(visit_of(key)[0] != PATCH for key in frontier.waiting)
        ahead = Ahead(stops, again, _pending(compiled, frontier), patches, others)
    if row is None:
        return DepartedLine(ahead)
    reason = str(read_value(row, "reason") or "")
    return DepartedLine(ahead, reason, _before(row, {one.request.task for one in states}))


def _pending(compiled: Compiled, frontier: Frontier) -> tuple[Edge, ...]:
    """The edges whose tokens go on, and those of what was sent."""
    sent = {target for target, _ in frontier.sends}
    tokens = [edge for edge in compiled.edges if edge.id in frontier.tokens]
    return (*tokens, *{edge.target: edge for edge in compiled.edges if edge.target in sent}.values())


def _before(line: RunLine, tasks: Collection[str]) -> dict[Place, list[Decision]]:
    at = {"run": line.departure_run, "line": line.parent_line, "task__in": tasks, "request__isnull": False}
    found: dict[Place, list[Decision]] = {}
    made = list(Decision.objects.filter(**at).select_related("by").order_by("event_seq"))
    sealed_rows.verify_rows(made, sealed_rows.protection_of(line.run))
    for one in made:
        found.setdefault((one.task, one.position), []).append(one)
    return found
