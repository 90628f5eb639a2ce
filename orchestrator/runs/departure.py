"""A point to go back to: a checkpoint with all that a plan looks at. Rows that are read here prove to be what was
sealed, for what begins at the point is sealed anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from approvals.gates.guarded_channels import guard_of_each
from approvals.models import ApprovalRequest
from checkpoints import lines, timeline
from checkpoints.ledger import pending_writes
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, MemoryLanding, PendingWrite, Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import IncompatibleGraph
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import is_patch
from orchestrator.engine.reduce import HeldWrite
from orchestrator.execution.open_superstep import OpenSuperstep

State = dict[str, dict[str, Any]]


@frozen
class HeldTask:
    """What people were asked of one task: its proposal, whose gate held it, and why; the hash of what the task read,
    and the checkpoint with that state.
    """

    task: Task
    writes: tuple[HeldWrite, ...]
    guard: str
    why: str | None = None
    input_hash: str = ""
    prepared_from: UUID | None = None


@frozen
class Effect:
    """What a task did to the world, or to memory, elsewhere than on the way to a point. `certain`: it happened."""

    task: Task
    effect: str
    run: UUID
    line: int
    certain: bool


@dataclass(frozen=True)
class Departure:
    """A checkpoint of a run with what resuming from it would need; `graph` is what goes on from it."""

    checkpoint: Checkpoint
    run: Run
    graph: Compiled
    input: Any
    document: dict[str, Any]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The way to it, through older lines and origins."""
        return lines.past(self.run.id, self.checkpoint.line, self.checkpoint.seq)

    @cached_property
    def frontier(self) -> Frontier:
        return Frontier.from_json(self.document["frontier"])

    @cached_property
    def open(self) -> OpenSuperstep:
        return OpenSuperstep.from_json(self.document["open"])

    @property
    def state(self) -> State:
        return {name: self.document[name] for name in ("scratch", "artifacts")}


def load_departure(checkpoint: UUID | str) -> Departure:
    """The point at a kept checkpoint. Raises `UnknownThing`, `TamperedRow`, `WrongKey`, and `IncompatibleGraph` where
    its graph is not registered here in a version that could go on from it.
    """
    row = timeline.get_checkpoint(checkpoint)
    given, document = timeline.input_of(row.run), timeline.snapshot_of(row)
    return Departure(row, row.run, _graph_for(row, document), given, document)


def _graph_for(row: Checkpoint, document: dict[str, Any]) -> Compiled:
    """The graph that the checkpoint was made with; else the current version, where all that is live is in it."""
    pinned = registry.find_graph(row.fingerprint)
    if pinned is not None:
        return pinned
    graph = registry.current(row.graph)
    frontier, known = Frontier.from_json(document["frontier"]), {*graph.nodes}
    gone = [f"edge {edge}" for edge in frontier.tokens if edge not in graph.edge]
    live = [task.node for task in frontier.gated() if not is_patch(task)] + [target for target, _ in frontier.sends]
    gone += [f"node {node}" for node in live if node not in known]
    channels = {**document["scratch"], **document["artifacts"]}
    gone += [f"channel {name}" for name in channels if name not in graph.channels]
    if gone:
        what = f"version {row.version} of {row.graph} is not registered here, and version {graph.version} lacks"
        raise IncompatibleGraph(f"{what} {', '.join(gone)}", graph=row.graph, missing=gone)
    return graph


def effects_elsewhere(point: Departure) -> list[Effect]:
    """What tasks of the point's run, or of a run that it comes from, did that is not on the way to the point; in the
    order in which it was begun. Three queries a run.
    """
    found: list[Effect] = []
    for run in dict.fromkeys(one.run for one in point.stretches):
        way = lines.within([one for one in point.stretches if one.run == run])
        found += _journaled(point.graph, run, way)
        landed = MemoryLanding.objects.filter(run=run).exclude(way).order_by("id")
        tasks = dict.fromkeys(landed.values_list("node", "visit", "index", "line"))
        found += [Effect(Task(n, v, i), "memory", run, line, certain=True) for n, v, i, line in tasks]
    return found


def _journaled(graph: Compiled, run: UUID, way: Any) -> list[Effect]:
    elsewhere = TaskResult.objects.filter(run=run).exclude(way, seq__isnull=False).order_by("id")
    _require_not_done(run, elsewhere)
    acted = elsewhere.exclude(outcome=Outcome.NOT_DONE)
    found: dict[tuple[Task, int], Effect] = {}
    for node, visit, index, line, effect, outcome in acted.values_list(
        "node", "visit", "index", "line", "effect", "outcome"
    ):
        declared, certain = graph.nodes.get(node), outcome == Outcome.DONE
        if not certain and declared is not None and declared.atomic:
            continue  # its transaction was rolled back, or will be
        key = Task(node, visit, index), line
        if certain or key not in found:
            found[key] = Effect(key[0], effect, run, line, certain=certain)
    return list(found.values())


def _require_not_done(run: UUID, rows: Any) -> None:
    """What says that nothing happened must prove it: it is what keeps an effect off the plan."""
    said = list(rows.filter(outcome=Outcome.NOT_DONE).select_related("run"))
    for row in said:
        sealed_rows.verify_row(row, protection_of(row.run))


def held_tasks_at(point: Departure) -> list[HeldTask]:
    """What waits for people at the point, as it was proposed. Two queries, none where nothing does."""
    tasks = point.frontier.gated() | point.open.asked
    if not tasks:
        return []
    protection, at = protection_of(point.run), {"run": point.run.id, "line": point.checkpoint.line}
    nodes = {task.node for task in tasks}
    rows = PendingWrite.objects.filter(**at, node__in=nodes, revision=1).order_by("position")
    requests = list(ApprovalRequest.objects.filter(**at, node__in=nodes))
    held: dict[Task, list[HeldWrite]] = {}
    for row in rows:
        task = Task(row.node, row.visit, row.index)
        if task in tasks:
            sealed_rows.verify_row(row, protection)
            held.setdefault(task, []).append(_proposal(task, row))
    asked = {Task(one.node, one.visit, one.index): one for one in requests}
    sealed_rows.verify_rows([asked[task] for task in held if task in asked], protection)
    return [
        HeldTask(task, tuple(held[task]), _guard(point, task, held[task]), *_origin(asked.get(task)))
        for task in sorted(held, key=lambda task: (point.graph.order.get(task.node, -1), task.visit, task.index))
    ]


def _proposal(task: Task, row: PendingWrite) -> HeldWrite:
    shown = read_value(row, "shown") or {}
    label = str(shown.get("label") or row.label)
    version = pending_writes.base_of(row).version
    value = read_value(row, "value")
    return HeldWrite(task, row.position, row.channel, value, None if label == row.channel else label, version)


def _guard(point: Departure, task: Task, writes: Sequence[HeldWrite]) -> str:
    """The node whose gate held a task: its own, else that which guards what it writes."""
    node = point.graph.nodes.get(task.node)
    if node is not None and node.gate:
        return task.node
    found = guard_of_each(point.stretches, point.graph, [write.channel for write in writes])
    return next(iter(found.values()))


def _origin(request: ApprovalRequest | None) -> tuple[str | None, str, UUID | None]:
    """Why people were asked, and what the proposal was made from."""
    if request is None:
        return None, "", None
    return read_value(request, "why"), request.input_hash, request.prepared_from
