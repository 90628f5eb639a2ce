"""The line that a run is on, if it departed from an older checkpoint: the stops before
it, why it was begun, and what people had decided at the same places before. Reads only;
finds nothing for a run that never departed.
"""

from collections.abc import Collection, Sequence

from approvals.gates.repeated_effects import repeats_of
from approvals.gates.request_state import RequestState
from approvals.models import (
    ANSWERS,
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from checkpoints import lines, timeline
from checkpoints.models import PendingWrite, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import Edge
from orchestrator.engine.step.frontier import Frontier, visit_of
from orchestrator.engine.step.held_patch import PATCH

Place = tuple[str, int]
"""A task, and the position of a write in it: the same on every line."""


@frozen
class Ahead:
    """The part of a line that is still to come.

    `stops` are the nodes that it does not start without a person's yes; `again` those
    that it does start although what they do has happened in a related run or on a line
    that was left. If a patch waits for people, `pending` are the edges whose tokens go
    on once it is signed, `patches` is the number of gates that have to sign it, and
    `others` is true if people are asked about anything else at that point.
    """

    stops: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    pending: tuple[Edge, ...] = ()
    patches: int = 0
    others: bool = False


NOTHING_AHEAD = Ahead()


@frozen
class DepartedLine:
    """The part of a line ahead, the `reason` for which it was begun, and earlier
    decisions (`before`) by place.
    """

    ahead: Ahead = NOTHING_AHEAD
    reason: str = ""
    before: dict[Place, list[Decision]] | None = None

    def before_of(self, row: PendingWrite) -> list[Decision]:
        """Return what people had decided on this write on the line that was left."""
        return (self.before or {}).get((row.task, row.position), [])


def departed_line(
    run: Run, compiled: Compiled | None, states: Sequence[RequestState]
) -> DepartedLine:
    """Return the line that the run is on. No query if the run never departed, else
    four. Two more while people are asked about a patch, or about what a migration made
    of a guarded channel.

    Raises `TamperedRow` or `WrongKey` if a row is not as it was written.
    """
    row = _line_that_departed(run)
    requests = [state.request for state in states]
    ahead = _ahead_of(run, row, compiled, requests)
    if row is None:
        return DepartedLine(ahead)
    reason = str(read_value(row, "reason") or "")
    tasks = {request.task for request in requests}
    earlier = _earlier_decisions(row, tasks)
    return DepartedLine(ahead, reason, before=earlier)


def _line_that_departed(run: Run) -> RunLine | None:
    if run.line == 1 and not run.origin_checkpoint:
        return None
    return lines.line_row(run, run.line)


def _ahead_of(
    run: Run,
    row: RunLine | None,
    compiled: Compiled | None,
    requests: Sequence[ApprovalRequest],
) -> Ahead:
    stops = frozenset(row.stops if row else ())
    again = frozenset(repeats_of(row).again)
    patches = sum(
        request.status == RequestStatus.OPEN and request.node == PATCH
        for request in requests
    )
    if not patches or compiled is None:
        return Ahead(stops, again)

    # A held patch stops the whole frontier, so the page shows where it will go on.
    frontier = Frontier.from_json(timeline.head_document(run.id)["frontier"])
    others = any(visit_of(key)[0] != PATCH for key in frontier.waiting)
    return Ahead(
        stops=stops,
        again=again,
        pending=_edges_ahead(compiled, frontier),
        patches=patches,
        others=others,
    )


def _edges_ahead(compiled: Compiled, frontier: Frontier) -> tuple[Edge, ...]:
    """Return the edges on which tokens wait, and one edge to each node that was sent
    work.
    """
    with_tokens = [edge for edge in compiled.edges if edge.id in frontier.tokens]
    sent_to = {target for target, _ in frontier.sends}
    # A send consumes no token, so any edge to its target represents it.
    edge_to = {edge.target: edge for edge in compiled.edges if edge.target in sent_to}
    return (*with_tokens, *edge_to.values())


def _earlier_decisions(
    line: RunLine, tasks: Collection[str]
) -> dict[Place, list[Decision]]:
    """Return what people decided in these tasks on the line that this one left."""
    decisions = list(
        Decision.objects.filter(
            run=line.departure_run,
            line=line.parent_line,
            task__in=tasks,
            # Without a request it was the system that decided.
            request__isnull=False,
        )
        .exclude(verdict__in=ANSWERS)
        .select_related("by")
        .order_by("event_seq")
    )
    # They may be decisions of the origin, whose protection a fork takes over.
    sealed_rows.verify_rows(decisions, sealed_rows.protection_of(line.run))
    by_place: dict[Place, list[Decision]] = {}
    for decision in decisions:
        place = (decision.task, decision.position)
        by_place.setdefault(place, []).append(decision)
    return by_place
