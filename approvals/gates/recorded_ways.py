"""Reads where tasks that a replay does not run went on, and what they sent. Of tasks
that waited for people, and of tasks that passed a gate that needed nobody, only rows of
the timeline show this, and retention may have removed them. Reads only.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from approvals.gates.waivers import LINE, payload_hash
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.ledger import reader
from checkpoints.lines import in_parts
from checkpoints.memory.replay_shelf import OriginLine
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.line_facts import required_facts
from checkpoints.verification.removed_history import KIND
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow, WrongStatus
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.frontier import Frontier, visit_key

Sends = tuple[tuple[str, Any], ...]
NAMED = 3
"""The most lost tasks that a sentence names."""


def ways_of(
    origin: OriginLine, task: Task, superstep: int
) -> tuple[tuple[str, ...] | None, Sends] | None:
    """Return the goto and the sends that a task returned when it reached its gate,
    which its visit carries while it waits; None if no row shows them.
    """
    # A superstep that failed first has the number of the one before.
    rows = _kept_checkpoints(origin).filter(superstep__in=[superstep, superstep + 1])
    parts = _waiting_parts(rows, visit_key(task.node, task.visit))
    if task.index >= len(parts):
        return None
    part = parts[task.index]
    goto = part["goto"]
    if goto is not None:
        goto = tuple(goto)
    sends = tuple((target, payload) for target, payload in part["sends"])
    return goto, sends


def _waiting_parts(rows: "QuerySet[Checkpoint]", visit: str) -> list[Any]:
    """Return the tasks of a visit as they are in the first of these checkpoints in
    which the visit waits; none if it waits in none.
    """
    for checkpoint in rows.order_by("seq").values_list("id", flat=True):
        document = reader.document_at(checkpoint) or {}
        frontier = document.get("frontier", {})
        waiting = frontier.get("waiting", {})
        parts: list[Any] = waiting.get(visit)
        if parts:
            return parts
    return []


def sends_past_gate(origin: OriginLine, facts: Mapping[str, Any]) -> Sends | None:
    """Return what a task sent whose gate waived approval, as the frontier after its
    superstep has it; None if no row shows it. `facts` are those of its event in the
    log.
    """
    sends = facts.get("sends", [])
    if not sends:
        return ()
    # The log names payloads by their hashes only.
    frontier = _frontier_after(origin, facts["superstep"])
    payload_by_hash = {}
    for payload in _payloads_in(frontier):
        hash_ = payload_hash(payload, origin.protection)
        payload_by_hash[hash_] = payload

    sends_with_payloads = []
    for target, hash_ in sends:
        if hash_ not in payload_by_hash:
            return None
        sends_with_payloads.append((target, payload_by_hash[hash_]))
    return tuple(sends_with_payloads)


def _frontier_after(origin: OriginLine, superstep: int) -> Frontier:
    """Return the frontier after a superstep; an empty one if no row shows it."""
    checkpoints = _kept_checkpoints(origin).filter(superstep=superstep)
    ids = checkpoints.order_by("seq").values_list("id", flat=True)
    first = ids.first()
    if not first:
        return Frontier()
    document = reader.document_at(first) or {}
    return Frontier.from_json(document["frontier"])


def _payloads_in(frontier: Frontier) -> Iterator[Any]:
    """Yield what is carried by sends that go on, and by those that wait at a gate."""
    for _, carried in frontier.sends:
        yield from carried
    for parts in frontier.waiting.values():
        for part in parts:
            for _, payload in part.sends:
                yield payload


def settlements(origin: OriginLine) -> list[tuple[int, list[Task]]]:
    """Return (superstep, tasks) of each settlement of the line, in order. Two queries,
    for up to a thousand of them. Raises `TamperedRow`, `WrongKey`.
    """
    # The log keeps what retention removes of the timeline.
    tasks_by_seq = _applied_tasks(origin)
    in_order: list[tuple[int, list[Task]]] = []
    for part_of_numbers in in_parts(tasks_by_seq):
        rows = RunEvent.objects.filter(run=origin.id, seq__in=part_of_numbers)
        events = list(rows.order_by("seq"))
        sealed_rows.verify_rows(events, origin.protection)
        for event in events:
            facts = required_facts(event)
            if _source_in(event, facts) != Source.SETTLEMENT:
                continue
            tasks = tasks_by_seq[event.seq]
            in_order.append((facts["superstep"], tasks))
    return in_order


def _source_in(line: RunEvent, facts: Mapping[str, Any]) -> Any:
    """Return the source of the checkpoint that a line saved. Raises `TamperedRow`."""
    if "source" not in facts:
        name = sealed_rows.name_of(line)
        raise TamperedRow(f"{name} lacks the fact 'source'", row=name)
    return facts["source"]


def _applied_tasks(origin: OriginLine) -> dict[int, list[Task]]:
    """Return the tasks whose gates were applied on the line, by the number of the event
    of the checkpoint that applied them.
    """
    types = ("line_begun", "checkpoint_saved", "gate_applied")
    events = RunEvent.objects.filter(run=origin.id, type__in=types)
    columns = events.order_by("seq").values_list("seq", "type", "task")
    line = 1
    last_checkpoint = 0
    tasks_by_seq: dict[int, list[Task]] = {}
    # The event of a checkpoint comes before those of the gates that it applied.
    for seq, type_, task in columns:
        if type_ == "line_begun":
            line += 1
        elif type_ == "checkpoint_saved":
            last_checkpoint = seq
        elif line == origin.line:
            tasks = tasks_by_seq.setdefault(last_checkpoint, [])
            tasks.append(_task_in(origin, seq, task))
    return tasks_by_seq


def _task_in(origin: OriginLine, seq: int, task: str) -> Task:
    """Return the task that a line names, whose seal was not verified. Raises
    `TamperedRow`.
    """
    try:
        return Task.parse(task)
    except ValueError as error:
        raise TamperedRow(f"line {seq} of run {origin.id} names no task") from error


def require_ways(graph: Compiled, run: Run, point: Checkpoint) -> None:
    """Raise `WrongStatus` if a replay from this checkpoint could not find out where a
    later task went, because the rows that showed it were removed. One query if nothing
    of the run was removed.
    """
    if not RunEvent.objects.filter(run=run.id, type=KIND).exists():
        return
    origin = OriginLine(run.id, point.line, protection_of(run))
    lost = _lost_tasks(graph, origin, point)
    if lost:
        raise WrongStatus(
            f"history of run {run.key} was removed, and with it where "
            f"{_names_of(lost)} went, so it is not replayed from here; "
            "replay it from a later checkpoint, or fork it",
            run=str(run.id),
            status=run.status,
            tasks=lost,
        )


def _names_of(tasks: Sequence[str]) -> str:
    names = ", ".join(tasks[:NAMED])
    if len(tasks) <= NAMED:
        return names
    return f"{names} and {len(tasks) - NAMED} more"


def _lost_tasks(graph: Compiled, origin: OriginLine, point: Checkpoint) -> list[str]:
    """Return the tasks of the line after this checkpoint that waited at a gate, or
    passed one, and whose ways no row shows.
    """
    nodes = []
    for name, node in graph.nodes.items():
        # A journaled node's result has its ways, whatever was removed of the timeline.
        if node.journaled:
            continue
        if node.goto or node.sends:
            nodes.append(name)
    events = _events_behind(origin.id, point).filter(node__in=nodes)
    return [
        *_lost_after_signatures(origin, nodes, events),
        *_lost_past_gates(origin, events),
    ]


def _events_behind(run: UUID, point: Checkpoint) -> "QuerySet[RunEvent]":
    """Return the events of the checkpoint's line that follow it."""
    events = RunEvent.objects.filter(run=run, seq__gt=point.event_seq)
    next_lines = events.filter(type="line_begun").order_by("seq")
    end = next_lines.values_list("seq", flat=True).first()
    if end is None:
        return events
    return events.filter(seq__lt=end)


def _lost_after_signatures(
    origin: OriginLine,
    nodes: Collection[str],
    events: "QuerySet[RunEvent]",
) -> Iterator[str]:
    """Yield the tasks that waited for signatures and whose ways no row shows."""
    # A request does not have the number of its event, so the log shows which ones
    # follow the checkpoint.
    requests_opened = events.filter(type="request_opened")
    tasks_at_gates = set(requests_opened.values_list("task", flat=True))
    requests = ApprovalRequest.objects.filter(
        run=origin.id,
        line=origin.line,
        node__in=nodes,
        status=RequestStatus.APPLIED,
    )
    in_order = requests.order_by("superstep", "id")
    rows = in_order.values_list("node", "visit", "index", "superstep")
    for node, visit, index, superstep in rows:
        task = Task(node, visit, index)
        if str(task) not in tasks_at_gates:
            continue
        if ways_of(origin, task, superstep) is None:
            yield str(task)


def _lost_past_gates(
    origin: OriginLine,
    events: "QuerySet[RunEvent]",
) -> Iterator[str]:
    """Yield the tasks that passed a gate that needed nobody, if no row shows what they
    sent.
    """
    waivers = list(events.filter(type=LINE).order_by("seq"))
    sealed_rows.verify_rows(waivers, origin.protection)
    for event in waivers:
        facts = required_facts(event)
        if sends_past_gate(origin, facts) is None:
            yield event.task


def _kept_checkpoints(origin: OriginLine) -> "QuerySet[Checkpoint]":
    # A recovery point goes with the next commit, so a replay cannot rely on it.
    return Checkpoint.objects.filter(run=origin.id, line=origin.line, kept=True)
