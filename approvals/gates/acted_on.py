"""The authority of nodes: the writes that a gate has let through on the way to a line's
end, with the requests and decisions that let them. Reads only.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import (
    RequestState,
    load_states,
    require_all_decisions,
)
from approvals.gates.waivers import LINE, VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import lines
from checkpoints.journal.intents import tasks_of
from checkpoints.lines import Stretch, logged_until
from checkpoints.models import Run, RunEvent
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.engine.step.output import WriteValue

LINE_BEGUN = "line_begun"
_PASSED = ("gate_applied", LINE)
"""The types of the events by which a gate lets something through."""
_OF_VISITS = ("effects_started", "request_opened", *_PASSED)
"""The types of the events of a node's visits: it acted, or people were asked first."""


@frozen
class LetThrough:
    """The writes that a task's gate has let through, as they were applied, and the
    request about them; None if the gate waived approval.
    """

    task: Task
    writes: tuple[WriteValue, ...]
    request: RequestState | None = None


@frozen
class ActedGate:
    """A gate on whose authority a node acts in this visit; `own_call` is the task about
    whose call alone it decided. `goes_on`: an earlier visit of the node is judged with
    it, and acts on what the gate let through before.
    """

    gate: str
    node: str
    visit: int
    own_call: Task | None = None
    goes_on: bool = False


@dataclass(slots=True)
class _Passed:
    """The passages of a gate on the stretches that were read so far: the ids of its
    applied requests by task, those of requests about values that came round it, and the
    system's decisions that nobody was needed.
    """

    requests: dict[Task, UUID] = field(default_factory=dict)
    round_it: list[UUID] = field(default_factory=list)
    waivers: dict[Task, list[Decision]] = field(default_factory=dict)
    newest: int = 0

    def of_visits_from(self, first: int) -> list[LetThrough]:
        """Return what was let through on the visits from this one on."""
        ids = [id for task, id in self.requests.items() if task.visit >= first]
        passed = [_of_request(state) for state in states_of([*ids, *self.round_it])]
        for task, decisions in self.waivers.items():
            if task.visit >= first:
                passed.append(_of_waivers(task, decisions))
        # Nobody acts on a task all of whose writes were rejected.
        return [through for through in passed if through.writes]


def let_through(run: UUID, line: int, acted: ActedGate) -> list[LetThrough]:
    """Return what a gate let through before the end of a line for a node that acts on
    it, by task: on the gate's visits from the number of the node's on, or on its newest;
    on those that were applied since the node's last visit; and what people approved at
    this gate of values that came round it since. Empty if no visit was decided, and
    without those tasks all of whose writes were rejected.

    Where each visit of the gate leads to one of the acting node, earlier visits were
    acted on before; where several of the gate come first, all of them count. Six
    queries, two more for a later visit, and five for each earlier
    line, seven for each origin.

    Raises `TamperedRow` and `WrongKey` if a row is not as it was written.
    """
    passed = _Passed()
    seen: set[Task] = set()
    first = acted.visit
    # What an earlier visit acted on is known once that visit is met.
    has_met = acted.visit == 1 or acted.goes_on
    for stretch in _way(run, line):
        oldest = _read_stretch(
            passed,
            stretch,
            acted.gate,
            seen,
        )
        if not has_met:
            applied, has_met = _applied_since(stretch, acted)
            first = min([first, *applied])
        # Visits are numbered along the way, so that all earlier ones are older.
        is_whole = oldest < min(passed.newest, first)
        if has_met and passed.newest and is_whole:
            break
    oldest_counted = min(passed.newest, first)
    return passed.of_visits_from(oldest_counted)


def _way(run: UUID, line: int) -> Iterator[Stretch]:
    """Yield the way to the end of a line, the newest stretch first. Before the first one
    of an origin its decisions are counted, as those of the run itself are before.

    Raises `TamperedRow`, `WrongKey`.
    """
    counted = {run}
    for stretch in lines.past(run, line):
        if stretch.run not in counted:
            _require_decisions_of(stretch.run)
            counted.add(stretch.run)
        yield stretch


def _require_decisions_of(origin: UUID) -> None:
    """Raise `TamperedRow` if an origin has fewer decisions than its row says. Without
    its row, which retention may have removed, nothing says how many there were.
    """
    row = Run.objects.only(*run_row.SEALED).filter(id=origin).first()
    if row is not None:
        run_row.verify_run_row(row)
        require_all_decisions(origin, row.decisions)


def _applied_since(stretch: Stretch, acted: ActedGate) -> tuple[list[int], bool]:
    """Return the visits of a gate that were applied on a stretch since the acting node's
    last visit, and whether that visit was on it. Two queries.

    Raises `TamperedRow`, `WrongKey`.
    """
    runs = Run.objects.only("encrypted", "hash_key")
    run = runs.filter(id=stretch.run).first()
    applied: list[int] = []
    # The log goes with its run.
    if run is None:
        return applied, False
    protection = protection_of(run)
    events = _events_of_visits(stretch, [acted.gate, acted.node])
    for event in events.iterator(chunk_size=100):
        # Anything older belongs to the earlier lines.
        if event.type == LINE_BEGUN:
            return applied, False
        sealed_rows.verify_row(event, protection)
        first_task = tasks_of(event.task)[0]
        visit = first_task.visit
        if event.node == acted.node and visit < acted.visit:
            return applied, True
        if event.node == acted.gate and event.type in _PASSED:
            applied.append(visit)
    return applied, False


def _events_of_visits(
    stretch: Stretch,
    nodes: Collection[str],
) -> "QuerySet[RunEvent]":
    """Return the events of the visits of these nodes, and of the beginnings of lines, up
    to the end of a stretch, the newest first.
    """
    is_of_visit = Q(
        type__in=_OF_VISITS,
        node__in=nodes,
    )
    events = RunEvent.objects.filter(
        is_of_visit | Q(type=LINE_BEGUN),
        run=stretch.run,
    )
    bound = logged_until(stretch)
    if bound is not None:
        events = events.filter(seq__lte=bound)
    return events.order_by("-seq")


def approved_calls_of(
    run: UUID, line: int, tasks: Collection[Task]
) -> dict[Task, list[LetThrough]]:
    """Return the approved calls of these tasks, which are about themselves alone. No
    query without tasks, else as `let_through`. Raises as that does.
    """
    approved: dict[Task, list[LetThrough]] = {}
    missing = set(tasks)
    if not missing:
        return approved
    for stretch in _way(run, line):
        ids: list[UUID] = []
        for node in {task.node for task in missing}:
            applied = _applied(stretch, node, logged_until(stretch), set())
            ids += [applied[task] for task in missing & applied.keys()]
        for state in states_of(ids):
            through = _of_request(state)
            if through.writes:
                approved[state.task] = [through]
            missing.discard(state.task)
    return approved


def _read_stretch(passed: _Passed, stretch: Stretch, node: str, seen: set[Task]) -> int:
    """Add what a stretch has of the visits of a gate, and return the number of the
    oldest (the largest number there is if it has none). Adds to `seen` the tasks about
    which people were asked on it: earlier stretches say nothing about these.
    """
    bound = logged_until(stretch)
    requests = _applied(stretch, node, bound, seen)
    waivers = _waivers(stretch, node, bound)
    # What bypassed the gate after its newest visit, which is on no older stretch.
    if not passed.newest:
        passed.round_it += _round(stretch, node, bound)
    visits = [task.visit for task in [*requests, *waivers]]
    # Everything read so far is newer.
    passed.requests = {**requests, **passed.requests}
    passed.waivers = {**waivers, **passed.waivers}
    passed.newest = max([passed.newest, *visits])
    return min(visits, default=sys.maxsize)


def _round(stretch: Stretch, gate: str, bound: int | None) -> list[UUID]:
    """Return the ids of the applied requests in which people were asked at a gate about
    values that others brought in: patches, and outputs given when settling.
    """
    rows = ApprovalRequest.objects.filter(
        run=stretch.run,
        line=stretch.line,
        status=RequestStatus.APPLIED,
        policy__gate=gate,
    )
    rows = rows.exclude(node=gate).exclude(kind=AUTHORITY_KIND)
    if bound is not None:
        rows = rows.filter(settled_seq__lte=bound)
    return list(rows.values_list("id", flat=True))


def _applied(
    stretch: Stretch, node: str, bound: int | None, seen: set[Task]
) -> dict[Task, UUID]:
    """Return the ids of the newest applied request of each task of the node."""
    requests = ApprovalRequest.objects.filter(
        run=stretch.run, line=stretch.line, node=node
    )
    rows = requests.exclude(kind=AUTHORITY_KIND)
    columns = ("visit", "index", "id", "status", "settled_seq")
    applied: dict[Task, UUID] = {}
    on_stretch: set[Task] = set()
    for visit, index, id, status, seq in rows.order_by("ordinal").values_list(*columns):
        task = Task(node, visit, index)
        on_stretch.add(task)
        # What was applied after the departure belongs to the line that was left.
        is_past = bound is None or (seq is not None and seq <= bound)
        if status == RequestStatus.APPLIED and is_past and task not in seen:
            applied[task] = id
    seen |= on_stretch
    return applied


def _waivers(
    stretch: Stretch, node: str, bound: int | None
) -> dict[Task, list[Decision]]:
    """Return the decisions "not needed" on a stretch, by task of the node."""
    rows = Decision.objects.filter(
        run=stretch.run,
        line=stretch.line,
        verdict=VERDICT,
        task__startswith=f"{node}:",
    )
    if bound is not None:
        rows = rows.filter(event_seq__lte=bound)
    waivers: dict[Task, list[Decision]] = {}
    for row in rows.order_by("event_seq", "position"):
        waivers.setdefault(Task.parse(row.task), []).append(row)
    return waivers


def states_of(requests: Collection[UUID]) -> list[RequestState]:
    """Return the state of these applied requests, by line and task. One query, and two
    for each of their lines.

    Raises `TamperedRow` and `WrongKey`; also where decisions do not bear out that a
    request was applied, for its status is not sealed.
    """
    query: QuerySet[ApprovalRequest] = ApprovalRequest.objects.filter(id__in=requests)
    by_line: dict[tuple[UUID, int], list[ApprovalRequest]] = {}
    for row in query.select_related("run").order_by("visit", "index", "ordinal"):
        by_line.setdefault((row.run_id, row.line), []).append(row)
    states: list[RequestState] = []
    for rows in by_line.values():
        states += load_states(rows, protection_of(rows[0].run))
    for state in states:
        if state.outcome is None:
            raise TamperedRow(
                "a request is marked applied, but its decisions do not settle it",
                request=str(state.request.id),
            )
    return states


def renewals(
    run: UUID, line: int, tasks: Collection[Task]
) -> dict[tuple[Task, str], RequestState]:
    """Return the newest applied request in which people were asked again about what
    these tasks act on, by task and gate. One query, and three if there are any.

    Raises `TamperedRow`, `WrongKey`.
    """
    rows = ApprovalRequest.objects.filter(
        run=run,
        line=line,
        node__in={task.node for task in tasks},
        kind=AUTHORITY_KIND,
        status=RequestStatus.APPLIED,
    )
    ids = list(rows.values_list("id", flat=True))
    newest: dict[tuple[Task, str], RequestState] = {}
    # Of each task they come in the order in which they were asked.
    for state in states_of(ids):
        if state.task in tasks:
            newest[state.task, state.request.policy["gate"]] = state
    return newest


def _of_request(state: RequestState) -> LetThrough:
    writes: list[WriteValue] = []
    for row in state.writes:
        if state.standings[row.write].verdict == APPROVED:
            value = read_value(row, "value")
            writes.append(WriteValue(row.channel, value, row.label or None))
    return LetThrough(state.task, tuple(writes), state)


def _of_waivers(task: Task, decisions: Sequence[Decision]) -> LetThrough:
    run = Run.objects.only("encrypted", "hash_key").get(id=decisions[0].run)
    sealed_rows.verify_rows(decisions, protection_of(run))
    writes: list[WriteValue] = []
    for row in decisions:
        value = read_value(row, "final_value")
        writes.append(WriteValue(row.channel, value))
    return LetThrough(task, tuple(writes))
