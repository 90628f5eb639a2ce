"""Where tasks went that a replay does not run, and what they sent: of what people were asked, and of what passed a gate
that needed nobody, only rows of the timeline show it. Retention may have removed these. Reads only.
"""

from collections.abc import Mapping
from typing import Any

from approvals.gates.waivers import LINE, payload_hash
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.ledger import reader
from checkpoints.lines import in_parts
from checkpoints.memory.replay_shelf import OriginLine
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import KIND
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import WrongStatus
from orchestrator.engine.frontier import Frontier, visit_key

Sends = tuple[tuple[str, Any], ...]
NAMED = 3
"""So many lost tasks are named in a sentence."""


def ways_of(origin: OriginLine, task: Task, superstep: int) -> tuple[tuple[str, ...] | None, Sends] | None:
    """The goto and the sends that a task returned when it asked: its visit carries them while it waits. None where no
    row shows that.
    """
    # A superstep that failed first has the number of the one before.
    rows = _kept(origin).filter(superstep__in=[superstep, superstep + 1]).order_by("seq")
    documents = (reader.document_at(one) or {} for one in rows.values_list("id", flat=True))
    waiting = (one.get("frontier", {}).get("waiting", {}) for one in documents)
    visits = (found for one in waiting if (found := one.get(visit_key(task.node, task.visit))))
    parts: list[Any] = next(visits, [])
    if task.index >= len(parts):
        return None
    part = parts[task.index]
    goto = None if part["goto"] is None else tuple(part["goto"])
    return goto, tuple((target, payload) for target, payload in part["sends"])


def sends_past_gate(origin: OriginLine, facts: Mapping[str, Any]) -> Sends | None:
    """What a task sent on whose gate needed nobody, as the frontier behind its superstep has it; `facts` are those of
    its line in the log. None where no row shows that.
    """
    wanted = facts.get("sends", [])
    if not wanted:
        return ()
    id = _kept(origin).filter(superstep=facts["superstep"]).order_by("seq").values_list("id", flat=True).first()
    frontier = Frontier.from_json((reader.document_at(id) or {})["frontier"]) if id else Frontier()
    payloads = [payload for _, carried in frontier.sends for payload in carried]
    payloads += [sent for parts in frontier.waiting.values() for part in parts for _, sent in part.sends]
    known = {payload_hash(payload, origin.protection): payload for payload in payloads}
    if any(digest not in known for _, digest in wanted):
        return None
    return tuple((target, known[digest]) for target, digest in wanted)


def settlements(origin: OriginLine) -> list[tuple[int, list[Task]]]:
    """(superstep, tasks) of each settlement of the line, in order, as the log tells, which keeps what retention removes
    of the timeline. Two queries, for up to a thousand of them.
    """
    kinds = ("line_begun", "checkpoint_saved", "gate_applied")
    events = RunEvent.objects.filter(run=origin.id, type__in=kinds).order_by("seq")
    line, saved = 1, 0
    applied: dict[int, list[Task]] = {}
    for seq, kind, task in events.values_list("seq", "type", "task"):
        if kind == "line_begun":
            line += 1
        elif kind == "checkpoint_saved":
            saved = seq
        elif line == origin.line:
            applied.setdefault(saved, []).append(Task.parse(task))
    found: list[tuple[int, list[Task]]] = []
    for some in in_parts(applied):
        rows = list(RunEvent.objects.filter(run=origin.id, seq__in=some).order_by("seq"))
        sealed_rows.verify_rows(rows, origin.protection)
        told = [(row.seq, read_value(row, "payload")) for row in rows]
        found += [(facts["superstep"], applied[seq]) for seq, facts in told if facts["source"] == Source.SETTLEMENT]
    return found


def require_ways(graph: Compiled, run: Run, point: Checkpoint) -> None:
    """Raise `WrongStatus` where a replay from this checkpoint would not know where a task behind it went, because rows
    that showed it were removed. One query where nothing of the run was.
    """
    if not RunEvent.objects.filter(run=run.id, type=KIND).exists():
        return
    lost = _lost(graph, OriginLine(run.id, point.line, protection_of(run)), point)
    if lost:
        named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED} more" if len(lost) > NAMED else "")
        message = (
            f"history of run {run.key} was removed, and with it where {named} went, so it is not replayed from here; "
            "replay it from a later checkpoint, or fork it"
        )
        raise WrongStatus(message, run=str(run.id), status=run.status, tasks=lost)


def _lost(graph: Compiled, origin: OriginLine, point: Checkpoint) -> list[str]:
    """The tasks of the line behind this checkpoint whose ways no row shows, and that somebody or nobody approved."""
    nodes = [name for name, node in graph.nodes.items() if (node.goto or node.sends) and not node.journaled]
    behind = RunEvent.objects.filter(run=origin.id, seq__gt=point.event_seq)
    if (end := behind.filter(type="line_begun").order_by("seq").values_list("seq", flat=True).first()) is not None:
        behind = behind.filter(seq__lt=end)
    asked = set(behind.filter(type="request_opened", node__in=nodes).values_list("task", flat=True))
    requests = ApprovalRequest.objects.filter(
        run=origin.id, line=origin.line, node__in=nodes, status=RequestStatus.APPLIED
    )
    found = requests.order_by("superstep", "id").values_list("node", "visit", "index", "superstep")
    tasks = [(Task(node, visit, index), superstep) for node, visit, index, superstep in found]
    lost = [str(task) for task, at in tasks if str(task) in asked and ways_of(origin, task, at) is None]
    passed = list(behind.filter(type=LINE, node__in=nodes).order_by("seq"))
    sealed_rows.verify_rows(passed, origin.protection)
    return lost + [row.task for row in passed if sends_past_gate(origin, read_value(row, "payload")) is None]


def _kept(origin: OriginLine) -> Any:
    return Checkpoint.objects.filter(run=origin.id, line=origin.line, kept=True)
