"""A point to go back to: a checkpoint with all that a plan looks at. Rows that are read here prove to be what was
sealed, for what begins at the point is sealed anew.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Exists, Min, OuterRef, Q, QuerySet

from approvals.gates.guarded_channels import guard_of_each
from approvals.models import ApprovalRequest
from checkpoints import lines, timeline
from checkpoints.conf import conf
from checkpoints.ledger import pending_writes
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, MemoryLanding, PendingWrite, Run, TaskResult
from checkpoints.models.run_line import Travel
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Gate, Task, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import IncompatibleGraph, InvalidValue, PayloadTooLarge, TamperedRow, WrongStatus
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate import present
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.reduce import HeldWrite
from orchestrator.engine.trace import is_memory
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep

State = dict[str, dict[str, Any]]
MEMORY = "memory"
_OUTSIDE = ("write", "external")
"""The effect of what landed in memory."""


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
    certain: bool

    def reaches(self, runs: Collection[str], lands: Collection[str]) -> bool:
        """Whether it would happen again where these nodes run, and those only land what they returned."""
        return self.task.node in runs or (self.effect == MEMORY and self.task.node in lands)


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
        return lines.past(self.run.id, self.checkpoint.line, self.checkpoint.seq, known=self.run)

    @cached_property
    def frontier(self) -> Frontier:
        return Frontier.from_json(self.document["frontier"])

    @cached_property
    def open(self) -> OpenSuperstep:
        """What is kept of the superstep that was open; in another version of the graph each write as its type has it
        there. Raises `InvalidValue` for one that does not fit.
        """
        kept = OpenSuperstep.from_json(self.document["open"])
        if not self.retyped:
            return kept
        return replace(kept, results={task: self._fitted(task, one) for task, one in kept.results.items()})

    def _fitted(self, task: Task, one: FinishedTask) -> FinishedTask:
        if one.output is None:
            return one
        writes = [replace(write, value=self.fitted(task, write.channel, write.value)) for write in one.output.writes]
        return replace(one, output=replace(one.output, writes=tuple(writes)))

    @property
    def retyped(self) -> bool:
        """Whether another version of the graph than that of the checkpoint goes on from it."""
        return self.graph.fingerprint != self.checkpoint.fingerprint

    def fitted(self, task: Task, name: str, value: Any) -> Any:
        """What this task wrote to a channel, as the type of the channel has it in the graph that goes on. Raises
        `InvalidValue`, and `PayloadTooLarge`, naming the place.
        """
        if not self.retyped or is_memory(name):
            return value
        channel, path = self.graph.channels.get(name), f"{task.node}.{name}"
        if channel is None:
            message = f"{task} wrote to {name}, which is no channel of version {self.graph.version}"
            raise InvalidValue(message, path=path, task=str(task))
        if value is None and channel.lax_none:
            return None
        try:
            return channel.stage(value, limit=conf().max_value_bytes)
        except (InvalidValue, PayloadTooLarge) as error:
            raise type(error)(f"{task} wrote to {error.message}", **{**error.facts, "path": path}) from error

    @property
    def has_whole_way(self) -> bool:
        """Whether all runs that it comes from are here. One query."""
        runs = {one.run for one in self.stretches}
        return Run.objects.filter(id__in=runs).count() == len(runs)

    @property
    def state(self) -> State:
        return {name: self.document[name] for name in ("scratch", "artifacts")}


def load_departure(checkpoint: UUID | str) -> Departure:
    """The point at a kept checkpoint. Raises `UnknownThing`, `TamperedRow`, `WrongKey`, and `IncompatibleGraph` where
    its graph is not registered here in a version that could go on from it.
    """
    return departure_at(timeline.get_checkpoint(checkpoint))


def departure_at(row: Checkpoint) -> Departure:
    """As `load_departure`, where the row and its run are read."""
    given, document = timeline.input_of(row.run), timeline.snapshot_of(row)
    if "stored" in document["open"]:
        # What a store changed without anybody's signature: the run begins behind it.
        return load_departure(f"{row.run.key}:at-{row.seq + 1}")
    return Departure(row, row.run, _graph_for(row, document), given, document)


def guards_at(point: Departure, names: Sequence[str]) -> dict[str, str]:
    """Of those of these channels that are guarded the node whose gate does. Where not all of the way is here, as of
    imported runs and their forks, nobody knows who wrote what on it, so each channel is guarded, if there is any gate.
    """
    guarded = guard_of_each(point.stretches, point.graph, names)
    gates = [node.name for node in point.graph.nodes.values() if node.gate]
    if names and gates and not point.has_whole_way:
        return {name: guarded.get(name, gates[0]) for name in names}
    return guarded


def _graph_for(row: Checkpoint, document: dict[str, Any]) -> Compiled:
    """The graph that the checkpoint was made with; else the current version, where all that is live is in it."""
    pinned = registry.find_graph(row.fingerprint)
    if pinned is not None:
        return pinned
    graph = registry.current(row.graph)
    frontier, known = Frontier.from_json(document["frontier"]), {*graph.nodes}
    gone = [f"edge {edge}" for edge in frontier.tokens if edge not in graph.edge]
    open_ = OpenSuperstep.from_json(document["open"])
    waiting = [visit_of(key)[0] for key in frontier.waiting]
    live = {*waiting, *(target for target, _ in frontier.sends), *(task.node for task in open_.results)} - {PATCH}
    gone += [f"node {node}" for node in sorted(live) if node not in known]
    gates = {task.node for task in frontier.gated() | open_.asked} & known
    gone += [f"gate of {node}" for node in sorted(gates) if not graph.nodes[node].gate]
    channels = {**document["scratch"], **document["artifacts"]}
    gone += [f"channel {name}" for name in channels if name not in graph.channels]
    if gone:
        what = f"version {row.version} of {row.graph} is not registered here, and version {graph.version} lacks"
        raise IncompatibleGraph(f"{what} {', '.join(gone)}", graph=row.graph, missing=gone)
    return graph


def effects_elsewhere(point: Departure, *, fenced: bool = False) -> list[Effect]:
    """What was done that is not on the way to the point: by the point's run and the runs that it comes from, in the
    order in which it was begun, then by all other forks of them; of those only what the way has not done itself.

    Six queries and one for each generation of forks, whatever these did; more for each thousand of them. `fenced`:
    whoever works on the point's run is stopped by what is planned, so an atomic write that is under way in it does not
    happen.
    """
    own, way = {one.run for one in point.stretches}, lines.within(point.stretches)
    landed = MemoryLanding.objects.filter(run__in=own).exclude(way)
    found = [*_journaled(point, own, way, fenced=fenced), *_tasks_in_memory(landed)]
    for runs in lines.in_parts(lines.forks_below(own)):
        found += _done_by_others(point, runs, way)
    return found


def effects_unknown_here(point: Departure) -> list[Effect]:
    """Every write and external node of the graph of an imported run: what it did where it comes from, nobody here can
    tell, so each needs a yes.
    """
    nodes = point.graph.nodes.values()
    return [Effect(Task(node.name, 1, 0), node.effect, certain=False) for node in nodes if node.effect in _OUTSIDE]


def _journaled(point: Departure, runs: Collection[UUID], way: Q, *, fenced: bool) -> list[Effect]:
    elsewhere = TaskResult.objects.filter(run__in=runs).exclude(way, seq__isnull=False).order_by("id")
    for row in _said_not_done(elsewhere):
        sealed_rows.verify_row(row, protection_of(row.run))
    acted = elsewhere.exclude(outcome=Outcome.NOT_DONE)
    found: dict[tuple[UUID, int, Task], Effect] = {}
    for run, line, node, visit, index, effect, outcome in acted.values_list(
        "run", "line", "node", "visit", "index", "effect", "outcome"
    ):
        certain = outcome == Outcome.DONE
        stopped = fenced and run == point.run.id and not certain
        if _is_atomic(point, node) and (outcome == Outcome.FAILED or stopped):
            continue  # its transaction was rolled back, or will be
        key = run, line, Task(node, visit, index)
        if certain or key not in found:
            found[key] = Effect(key[2], effect, certain=certain)
    return [*found.values()]


def _is_atomic(point: Departure, node: str) -> bool:
    return node in point.graph.nodes and point.graph.nodes[node].atomic


def _done_by_others(point: Departure, runs: Collection[UUID], way: Q) -> list[Effect]:
    """What these forks did that the way to the point did not: a visit that the way used up need not have done it. One
    of each task, however many of them did it.
    """
    results = TaskResult.objects.filter(run__in=runs).exclude(_on_way(TaskResult, way, outcome=Outcome.DONE))
    landed = MemoryLanding.objects.filter(run__in=runs).exclude(_on_way(MemoryLanding, way))
    acted = results.exclude(outcome=Outcome.NOT_DONE).values_list("node", "visit", "index", "effect", "outcome")
    found: dict[Task, Effect] = {}
    for node, visit, index, effect, outcome, _ in acted.annotate(first=Min("id")).order_by("first"):
        certain, task = outcome == Outcome.DONE, Task(node, visit, index)
        rolled_back = outcome == Outcome.FAILED and _is_atomic(point, node)
        if not rolled_back and (certain or task not in found):
            found[task] = Effect(task, effect, certain=certain)
    for row in _said_not_done(results):
        task = Task(row.node, row.visit, row.index)
        # What is not proven may have happened. The fault is that run's alone, and who asks may not know of it.
        if task not in found and fault_of(row, protection_of(row.run)):
            found[task] = Effect(task, row.effect, certain=False)
    return [*found.values(), *_tasks_in_memory(landed)]


def _on_way(model: type[Any], way: Q, **more: Any) -> Exists:
    """Whether the way has a row of the same task."""
    same = {name: OuterRef(name) for name in ("node", "visit", "index")}
    return Exists(model.objects.filter(way, **same, **more))


def _tasks_in_memory(landed: "QuerySet[MemoryLanding]") -> list[Effect]:
    tasks = landed.values_list("node", "visit", "index").annotate(first=Min("id")).order_by("first")
    return [Effect(Task(node, visit, index), MEMORY, certain=True) for node, visit, index, _ in tasks]


def _said_not_done(rows: "QuerySet[TaskResult]") -> "QuerySet[TaskResult]":
    """Those that say that nothing happened, to be verified: it is what keeps an effect off the plan."""
    own = [field.attname for field in TaskResult._meta.concrete_fields]
    said = rows.filter(outcome=Outcome.NOT_DONE).select_related("run")
    return said.only(*own, "run__encrypted", "run__hash_key")


def held_tasks_at(point: Departure) -> list[HeldTask]:
    """What waits for people at the point, as it was proposed. Two queries, none where nothing does."""
    tasks = point.frontier.gated() | point.open.asked
    if not tasks:
        return []
    _require_asked(point)
    protection, at = protection_of(point.run), {"run": point.run.id, "line": point.checkpoint.line}
    nodes = {task.node for task in tasks}
    rows = PendingWrite.objects.filter(**at, node__in=nodes, revision=1).order_by("position")
    requests = list(ApprovalRequest.objects.filter(**at, node__in=nodes))
    held: dict[Task, list[PendingWrite]] = {}
    for row in rows:
        if (task := Task(row.node, row.visit, row.index)) in tasks:
            held.setdefault(task, []).append(row)
    asked = {Task(one.node, one.visit, one.index): one for one in requests}
    for task in tasks:
        _require_whole(point, task, asked.get(task), held.get(task, []))
        sealed_rows.verify_rows([asked[task], *held[task]], protection)
    order = sorted(held, key=lambda task: (point.graph.order.get(task.node, -1), task.visit, task.index))
    return [_held_task(point, task, held[task], asked[task]) for task in order]


def _require_asked(point: Departure) -> None:
    """Raise `WrongStatus` in a replay, which asked nobody."""
    row = lines.line_row(point.run, point.checkpoint.line)
    if row is not None and row.travel == Travel.REPLAY:
        message = f"{point.run.key} is a replay and asked nobody at this checkpoint; choose that of its origin"
        raise WrongStatus(message, status=point.run.status)


def _require_whole(point: Departure, task: Task, request: ApprovalRequest | None, rows: Sequence[PendingWrite]) -> None:
    """Raise `TamperedRow` where the request of a task that waits, or a write that it asks about, is gone."""
    if request is None or len(rows) != request.writes:
        what = f"{task} of run {point.run.key} waits at this checkpoint, and what it proposed is not all there"
        raise TamperedRow(what, row=f"approvals_approvalrequest {point.run.id} {task}")


def _held_task(point: Departure, task: Task, rows: Sequence[PendingWrite], request: ApprovalRequest) -> HeldTask:
    guard = _guard(point, task, [row.channel for row in rows])
    gate = point.graph.nodes[guard].gate or Gate()
    writes = tuple(_proposal(point, gate, task, row) for row in rows)
    return HeldTask(task, writes, guard, *_origin(request))


def _proposal(point: Departure, gate: Gate, task: Task, row: PendingWrite) -> HeldWrite:
    """The write as its node proposed it, with the label that the node gave, if it gave one; in another version of the
    graph with the value that is set there when it is signed.
    """
    shown = read_value(row, "shown") or {}
    version, value = pending_writes.base_of(row).version, read_value(row, "value")
    plain = HeldWrite(task, row.position, row.channel, value, None, version)
    made = present(gate, node=task.node, input=point.input, state=point.state, writes=[plain])["writes"]
    label = str(shown.get("label") or row.label)
    fitted = replace(plain, value=point.fitted(task, row.channel, value))
    return fitted if made[0]["label"] == label else replace(fitted, label=label)


def _guard(point: Departure, task: Task, channels: Sequence[str]) -> str:
    """The node whose gate held a task: its own, else that which guards what it writes."""
    node = point.graph.nodes.get(task.node)
    if node is not None and node.gate:
        return task.node
    found = set(guards_at(point, channels).values())
    if len(found) != 1:
        message = f"{task} waits at this checkpoint for a gate that cannot be told; choose the checkpoint before it"
        raise WrongStatus(message, task=str(task), gates=sorted(found))
    return found.pop()


def _origin(request: ApprovalRequest) -> tuple[str | None, str, UUID | None]:
    """Why people were asked, and what the proposal was made from."""
    return read_value(request, "why"), request.input_hash, request.prepared_from
