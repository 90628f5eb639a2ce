"""What nodes act on: the writes that a gate has let through on the way to a line's end,
with the requests and decisions that let them. Reads only.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from django.db.models import QuerySet

from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import RequestState, load_states
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import lines
from checkpoints.lines import Stretch, logged_until
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.engine.step.output import WriteValue


@frozen
class LetThrough:
    """What a task's gate has let through: its writes as they were applied, and the
    request about them; None where the gate needed nobody.
    """

    task: Task
    writes: tuple[WriteValue, ...]
    request: RequestState | None = None


@frozen
class _Visit:
    """The newest visit of a node on one stretch: the ids of its applied requests, and
    the system's decisions that nobody was needed.
    """

    requests: tuple[UUID, ...] = ()
    waivers: tuple[Decision, ...] = ()


def let_through(run: UUID, line: int, node: str) -> list[LetThrough]:
    """Return what the gate of a node let through on its newest visit before the end of
    a line, by task. Empty if no visit was decided, and without those tasks all of whose
    writes were rejected. Six queries, and three for each origin or earlier line.

    Raises `TamperedRow` and `WrongKey` if a row is not as it was written.
    """
    seen: set[Task] = set()
    for stretch in lines.past(run, line):
        visit = _newest_visit(stretch, node, seen)
        if visit is not None:
            return _of_visit(visit)
    return []


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
    for stretch in lines.past(run, line):
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


def _newest_visit(stretch: Stretch, node: str, seen: set[Task]) -> _Visit | None:
    """Return the newest visit that was decided on a stretch; None if there is none.
    Adds to `seen` the tasks about which people were asked on it: earlier stretches
    say nothing about these.
    """
    bound = logged_until(stretch)
    rows = _applied(stretch, node, bound, seen)
    waivers = _waivers(stretch, node, bound)
    visits = [task.visit for task in [*rows, *waivers]]
    if not visits:
        return None
    newest = max(visits)
    requests: list[UUID] = []
    for task, request in rows.items():
        if task.visit == newest:
            requests.append(request)
    waived: list[Decision] = []
    for task, decisions in waivers.items():
        if task.visit == newest:
            waived += decisions
    return _Visit(tuple(requests), tuple(waived))


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


def _of_visit(visit: _Visit) -> list[LetThrough]:
    passed = [_of_request(state) for state in states_of(visit.requests)]
    passed += _of_waivers(visit.waivers)
    # A task all of whose writes were rejected lets nobody act.
    return [through for through in passed if through.writes]


def states_of(requests: Collection[UUID]) -> list[RequestState]:
    """Return the state of these applied requests of one line, by task. Three queries.

    Raises `TamperedRow` and `WrongKey`; also where decisions do not bear out that a
    request was applied, for its status is not sealed.
    """
    query: QuerySet[ApprovalRequest] = ApprovalRequest.objects.filter(id__in=requests)
    rows = list(query.select_related("run").order_by("visit", "index", "ordinal"))
    if not rows:
        return []
    states = load_states(rows, protection_of(rows[0].run))
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


def _of_waivers(decisions: Sequence[Decision]) -> list[LetThrough]:
    if not decisions:
        return []
    run = Run.objects.only("encrypted", "hash_key").get(id=decisions[0].run)
    sealed_rows.verify_rows(decisions, protection_of(run))
    writes: dict[Task, list[WriteValue]] = {}
    for row in decisions:
        value = read_value(row, "final_value")
        write = WriteValue(row.channel, value)
        writes.setdefault(Task.parse(row.task), []).append(write)
    return [LetThrough(task, tuple(of_task)) for task, of_task in writes.items()]
