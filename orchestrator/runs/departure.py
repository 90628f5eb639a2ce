"""A point to go back to: a checkpoint with all that a plan looks at. Rows that are read here prove to be what was
sealed, for what begins at the point is sealed anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from approvals.gates.guarded_channels import guards_of_each
from approvals.gates.unsigned_changes import Changes, unsigned_changes
from approvals.models import ApprovalRequest
from checkpoints import lines, timeline, versions
from checkpoints.conf import conf
from checkpoints.ledger import pending_writes
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.models.run_line import Travel
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.past_effects import Effect, Way, effects_off
from orchestrator.engine import Gate, Task, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import (
    Erased,
    IncompatibleGraph,
    InvalidValue,
    PayloadTooLarge,
    TamperedRow,
    WrongStatus,
)
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate import present
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.judgement import Judgement
from orchestrator.engine.migration import Migration, migrated_state, misread_channels, way_between
from orchestrator.engine.patch import PARTITIONS
from orchestrator.engine.pending_parts import lost_ways, pending_parts
from orchestrator.engine.plan import unplanned
from orchestrator.engine.reduce import HeldWrite
from orchestrator.engine.trace import is_memory
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep

State = dict[str, dict[str, Any]]


@frozen
class HeldTask:
    """What people were asked of one task: its proposal, whose gate held it, and why; the hash of what the task read,
    and the checkpoint with that state. `reads` is what the gate's functions read to say so; None where nobody wrote
    that down. A patch that waits goes on to wait for the same `reviewers`.
    """

    task: Task
    writes: tuple[HeldWrite, ...]
    guard: str
    why: str | None = None
    input_hash: str = ""
    prepared_from: UUID | None = None
    reads: tuple[str, ...] | None = ()
    reviewers: tuple[str, ...] | None = None


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

    @cached_property
    def judgement(self) -> Judgement:
        """What differs between the checkpoint's version of the graph and the one that goes on, at this point. At most
        one query.
        """
        at = pending_parts(self.document["frontier"], self.document["open"])
        return versions.judgement_of(self.checkpoint, self.graph, at)

    @cached_property
    def steps(self) -> tuple[Migration, ...]:
        """The migrations that lead from the checkpoint's version of the graph to the one that goes on."""
        return _steps(self.checkpoint, self.graph) if self.retyped else ()

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
        if self.steps and (name in self.judgement.migrated_channels or self._is_misread(name, value)):
            message = (
                f"{task} wrote to {name} what version {self.checkpoint.version} had there, and no migration sees it"
            )
            raise InvalidValue(message, path=path, task=str(task))
        if channel is None:
            message = f"{task} wrote to {name}, which is no channel of version {self.graph.version}"
            raise InvalidValue(message, path=path, task=str(task))
        if value is None and channel.lax_none:
            return None
        try:
            return channel.stage(value, limit=conf().max_value_bytes)
        except (InvalidValue, PayloadTooLarge) as error:
            raise type(error)(f"{task} wrote to {error.message}", **{**error.facts, "path": path}) from error

    def _is_misread(self, name: str, value: Any) -> bool:
        limit = conf().max_value_bytes
        return bool(misread_channels(self.graph, self.steps, self.state, [(name, value)], limit=limit))

    @cached_property
    def unsigned_changes(self) -> Changes:
        """Who changed which channels on the way to it without a signature. Three queries."""
        return unsigned_changes(self.stretches)

    @cached_property
    def _imported(self) -> dict[UUID, bool]:
        """Of the runs that it comes from and that are here, whether each came in as a bundle. One query, none where it
        comes from no other run.
        """
        runs = {one.run for one in self.stretches}
        if runs == {self.run.id}:
            return {self.run.id: self.run.imported}
        return dict(Run.objects.filter(id__in=runs).values_list("id", "imported"))

    @property
    def leads_to_import(self) -> bool:
        """Return whether one of the runs that it comes from came in as a bundle, or is not here."""
        return not self.has_whole_way or any(self._imported.values())

    @property
    def has_whole_way(self) -> bool:
        """Whether all runs that it comes from are here."""
        return len(self._imported) == len({one.run for one in self.stretches})

    @property
    def state(self) -> State:
        """The state as it was kept."""
        return {name: self.document[name] for name in PARTITIONS}

    @cached_property
    def going_on(self) -> State:
        """The state with each channel of the graph that goes on: new ones at their defaults; in another version of the
        graph migrated, where a way leads there, else each value as its type has it there. Raises `InvalidValue` for
        one that does not fit, or where a migration fails, and `PayloadTooLarge`.
        """
        if self.steps:
            return migrated_state(self.graph, self.steps, self.state, limit=conf().max_value_bytes)
        graph, fresh = self.graph, self.graph.fresh_state()
        state = {part: {**fresh[part], **self.state[part]} for part in PARTITIONS}
        if not self.retyped:
            return state
        for part, values in state.items():
            for name, value in values.items():
                if graph.channels[name].partition != part:
                    message = f"{name} is no channel of {part} in version {graph.version}"
                    raise InvalidValue(message, path=f"{part}.{name}")
                if not (value is None and graph.channels[name].lax_none):
                    values[name] = graph.channels[name].stage(value, limit=conf().max_value_bytes)
        return state


def load_departure(checkpoint: UUID | str) -> Departure:
    """The point at a kept checkpoint. Raises `UnknownThing`, `TamperedRow`, `WrongKey`, and `IncompatibleGraph` where
    its graph is not registered here in a version that could go on from it, and `Erased`.
    """
    return departure_at(timeline.get_checkpoint(checkpoint))


def departure_at(row: Checkpoint) -> Departure:
    """As `load_departure`, where the row and its run are read."""
    refuse_erased(row.run)
    given, document = timeline.input_of(row.run), timeline.snapshot_of(row)
    if "stored" in document["open"]:
        # What a store changed without anybody's signature: the run begins behind it.
        return load_departure(f"{row.run.key}:at-{row.seq + 1}")
    return Departure(row, row.run, _graph_for(row, given, document), given, document)


def refuse_erased(run: Run) -> None:
    """Raise `Erased` where values of a run were erased: nothing departs from what is not there any more."""
    if run.erasure is not None:
        message = f"values of run {run.key} were erased, so nothing can begin at its checkpoints"
        raise Erased(message, run=str(run.id), record=str(run.erasure))


def guards_at(point: Departure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Of those of these channels that are guarded the nodes whose gates do. Where not all of the way is here, as of
    imported runs and their forks, nobody knows who wrote what on it, so each channel is guarded, if there is any gate.
    """
    guarded = guards_of_each(point.stretches, point.graph, names)
    gates = [node.name for node in point.graph.nodes.values() if node.gate]
    if names and gates and not point.has_whole_way:
        return {name: guarded.get(name, (gates[0],)) for name in names}
    return guarded


def _graph_for(row: Checkpoint, given: Any, document: dict[str, Any]) -> Compiled:
    """The graph that the checkpoint was made with; else the current version, where all that is live is in it."""
    pinned = registry.find_graph(row.fingerprint)
    if pinned is not None:
        return pinned
    graph = registry.current(row.graph)
    gone = list(_missing(row, graph, document))
    if gone:
        what = f"version {row.version} of {row.graph} is not registered here, and version {graph.version} lacks"
        raise IncompatibleGraph(f"{what} {', '.join(gone)}", graph=row.graph, missing=gone)
    _require_same_start(row, graph, given, document)
    return graph


def _missing(row: Checkpoint, graph: Compiled, document: dict[str, Any]) -> Iterator[str]:
    """What is live at a checkpoint and not in this version of its graph."""
    frontier, open_ = Frontier.from_json(document["frontier"]), OpenSuperstep.from_json(document["open"])
    yield from (f"edge {edge}" for edge in frontier.tokens if edge not in graph.edge)
    yield from (
        f"edge {edge}" for edge in lost_ways(pending_parts(document["frontier"], document["open"]).kept, graph.edge)
    )
    waiting = [visit_of(key)[0] for key in frontier.waiting]
    live = {*waiting, *(target for target, _ in frontier.sends), *(task.node for task in open_.results)} - {PATCH}
    yield from (f"node {node}" for node in sorted(live) if node not in graph.nodes)
    gates = {task.node for task in frontier.gated() | open_.asked} & {*graph.nodes}
    yield from (f"gate of {node}" for node in sorted(gates) if not graph.nodes[node].gate)
    if not _steps(row, graph):
        channels = {**document["scratch"], **document["artifacts"]}
        yield from (f"channel {name}" for name in channels if name not in graph.channels)


def _steps(row: Checkpoint, graph: Compiled) -> tuple[Migration, ...]:
    known = registry.migrations(graph.name)
    return way_between(known, row.version, graph.version) if row.version != graph.version else ()


def _require_same_start(row: Checkpoint, graph: Compiled, given: Any, document: dict[str, Any]) -> None:
    """Raise `IncompatibleGraph` where this version would not begin what the open superstep of a checkpoint began with,
    and so would do it again, or where it has no such input.
    """
    version = f"version {row.version} of {row.graph} is not registered here, and version {graph.version}"
    open_ = OpenSuperstep.from_json(document["open"])
    frontier = Frontier.from_json(document["frontier"])
    if open_.results and (left := unplanned(graph, frontier, open_.results, stops=open_.without)):
        message = f"{version} would not begin {', '.join(left)}, which began in the superstep that is open"
        raise IncompatibleGraph(message, graph=row.graph)
    try:
        graph.stage_input(given, limit=conf().max_value_bytes)
    except InvalidValue as error:
        raise IncompatibleGraph(f"{version} has another input: {error.message}", graph=row.graph) from error


def effects_elsewhere(point: Departure, *, fenced: bool = False) -> list[Effect]:
    """What was done elsewhere than on the way to the point, as `effects_off` tells."""
    atomic = frozenset(node.name for node in point.graph.nodes.values() if node.atomic)
    return effects_off(Way(point.run.id, point.stretches, atomic), fenced=fenced)


def effects_unknown_here(point: Departure) -> list[Effect]:
    """Every write and external node of a graph whose run came in as a bundle, or comes from one that did: what it did
    there nobody here can tell, so each needs a yes, whoever gave one to an earlier fork.
    """
    nodes = [node for node in point.graph.nodes.values() if node.effect in ("write", "external")]
    return [Effect(Task(node.name, 1, 0), node.effect, certain=False) for node in nodes]


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
    guard = _guard(point, task, request, [row.channel for row in rows])
    gate = point.graph.nodes[guard].gate or Gate()
    writes = tuple(_proposal(point, gate, task, row) for row in rows)
    reads = request.policy.get("reads")
    return HeldTask(
        task,
        writes,
        guard,
        *_origin(request),
        reads=None if reads is None else tuple(reads),
        reviewers=tuple(request.policy["reviewers"]) if task.node == PATCH else None,
    )


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


def _guard(point: Departure, task: Task, request: ApprovalRequest, channels: Sequence[str]) -> str:
    """The node whose gate held a task: its own, else the one that its request names, else that which guards what it
    writes.
    """
    node = point.graph.nodes.get(task.node)
    if node is not None and node.gate:
        return task.node
    named = point.graph.nodes.get(request.policy.get("gate", ""))
    if named is not None and named.gate:
        return named.name
    found = {guard for guards in guards_at(point, channels).values() for guard in guards}
    if len(found) != 1:
        message = f"{task} waits at this checkpoint for a gate that cannot be told; choose the checkpoint before it"
        raise WrongStatus(message, task=str(task), gates=sorted(found))
    return found.pop()


def _origin(request: ApprovalRequest) -> tuple[str | None, str, UUID | None]:
    """Why people were asked, and what the proposal was made from."""
    return read_value(request, "why"), request.input_hash, request.prepared_from
