"""A departure: a checkpoint from which a line begins, with all that a plan needs. Rows
that are read here are verified against their seals, because whatever begins at the
checkpoint is sealed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from approvals.gates.approved_calls import calls_of_line, state_is_gone
from approvals.gates.guarded_channels import guards_of_each
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.stored_proposals import why_at_first
from approvals.gates.unsigned_changes import Changes, unsigned_changes
from approvals.models import ApprovalRequest
from checkpoints import lines, timeline, versions
from checkpoints.conf import conf
from checkpoints.core.ids import unknown_thing
from checkpoints.ledger import pending_writes
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.models.run_line import Travel
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.past_effects import Effect, Way, effects_off
from orchestrator.engine import Gate, Task, registry
from orchestrator.engine.errors import (
    Erased,
    IncompatibleGraph,
    InvalidValue,
    PayloadTooLarge,
    TamperedRow,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import AUTHORITY, CALL, is_call
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.gate import present
from orchestrator.engine.graphs.question import stored_question
from orchestrator.engine.graphs.trace import is_memory
from orchestrator.engine.graphs.write import stored_form
from orchestrator.engine.step.frontier import Frontier, visit_of
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.step.plan import unplanned
from orchestrator.engine.step.reduce import HeldWrite, WriteValue
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.engine.versions.judgement import Judgement
from orchestrator.engine.versions.migration import (
    Migration,
    migrated_state,
    misread_channels,
    way_between,
)
from orchestrator.engine.versions.pending_parts import lost_ways, pending_parts
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep

State = dict[str, dict[str, Any]]


@frozen
class HeldTask:
    """A task about which people are asked: its proposal, the node whose gate held it,
    and why; the hash of what the task read, and the checkpoint with that state. `reads`
    is what the gate's functions read to decide so; None if that was not recorded. A
    patch that waits continues to wait for the same `reviewers`.
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
    """A checkpoint of a run with what continuing from it needs; `graph` is the version
    that continues.
    """

    checkpoint: Checkpoint
    run: Run
    graph: Compiled
    input: Any
    document: dict[str, Any]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Return the way to the checkpoint, through older lines and origins."""
        return lines.past(self.run.id, self.checkpoint.line, self.checkpoint.seq)

    @cached_property
    def frontier(self) -> Frontier:
        return Frontier.from_json(self.document["frontier"])

    @cached_property
    def open(self) -> OpenSuperstep:
        """Return what is kept of the superstep that was open. In another version of the
        graph each write is converted to its type there; raises `InvalidValue` for one
        that does not fit.
        """
        open_ = OpenSuperstep.from_json(self.document["open"])
        if not self.retyped:
            return open_
        results: dict[Task, FinishedTask] = {}
        for task, result in open_.results.items():
            results[task] = self._fitted(task, result)
        return replace(open_, results=results)

    def _fitted(self, task: Task, result: FinishedTask) -> FinishedTask:
        output = result.output
        if output is None:
            return result
        writes: list[WriteValue] = []
        for write in output.writes:
            if write.question is None:
                value = self.fitted(task, write.channel, write.value)
                writes.append(replace(write, value=value))
            else:
                self.require_askable(task, write.channel)
                writes.append(write)
        return replace(result, output=replace(output, writes=tuple(writes)))

    @cached_property
    def judgement(self) -> Judgement:
        """Return what differs between the checkpoint's version of the graph and the one
        that continues, at this point. At most one query.
        """
        at = pending_parts(self.document["frontier"], self.document["open"])
        # Waiting requests are asked again, under the policy of the version that
        # continues.
        return versions.judgement_of(self.checkpoint, self.graph, at, silent=frozenset)

    @cached_property
    def steps(self) -> tuple[Migration, ...]:
        """Return the migrations that lead from the checkpoint's version of the graph to
        the one that continues.
        """
        if not self.retyped:
            return ()
        return _steps(self.checkpoint, self.graph)

    @property
    def retyped(self) -> bool:
        """Return whether another version of the graph continues than the one that made
        the checkpoint.
        """
        return self.graph.fingerprint != self.checkpoint.fingerprint

    def fitted(self, task: Task, name: str, value: Any) -> Any:
        """Return what this task wrote to a channel, converted to the channel's type in
        the version that continues. Raises `InvalidValue`, and `PayloadTooLarge`, naming
        the place.
        """
        if not self.retyped or is_memory(name):
            return value
        channel = self._channel_of(task, name)
        path = f"{task.node}.{name}"
        # A migration converts the state alone, not what waits to be written to it.
        if self.steps and (
            name in self.judgement.migrated_channels or self._is_misread(name, value)
        ):
            message = (
                f"{task} wrote to {name} what version {self.checkpoint.version} "
                f"had there, and no migration sees it"
            )
            raise InvalidValue(message, path=path, task=str(task))
        if channel is None:
            message = (
                f"{task} wrote to {name}, "
                f"which is no channel of version {self.graph.version}"
            )
            raise InvalidValue(message, path=path, task=str(task))
        # The channel begins with None although its type allows none.
        if value is None and channel.lax_none:
            return None
        try:
            return channel.stage(value, limit=conf().max_value_bytes)
        except (InvalidValue, PayloadTooLarge) as error:
            raise type(error)(
                f"{task} wrote to {error.message}", **{**error.facts, "path": path}
            ) from error

    def require_askable(self, task: Task, name: str) -> None:
        """Raise `InvalidValue` if the version that continues has not the channel for
        whose value this task asks, or reads its values otherwise.
        """
        values: dict[str, Any] = {}
        for part in PARTITIONS:
            values |= self.state[part]
        # A question has no value, so the channel's present one stands for an answer.
        self.fitted(task, name, values.get(name))

    def _unseen_call(self, task: Task) -> InvalidValue:
        """Return the refusal of a call whose node would be given the state of the older
        version, which no migration sees.
        """
        message = (
            f"the call of {task} was prepared from the state of version "
            f"{self.checkpoint.version}, which no migration sees"
        )
        return InvalidValue(message, path=task.node, task=str(task))

    def _channel_of(self, task: Task, name: str) -> Channel | None:
        """Return the channel of the version that continues, None if it has none. Raises
        `InvalidValue` for a call that a migration would not see.
        """
        if self.steps and is_call(name):
            raise self._unseen_call(task)
        try:
            return self.graph.channel_of(task.node, name)
        except KeyError:
            return None

    def _is_misread(self, name: str, value: Any) -> bool:
        limit = conf().max_value_bytes
        misread = misread_channels(
            self.graph, self.steps, self.state, [(name, value)], limit=limit
        )
        return bool(misread)

    @cached_property
    def unsigned_changes(self) -> Changes:
        """Return who changed which channels on the way here without a signature. Three
        queries.
        """
        return unsigned_changes(self.stretches)

    @cached_property
    def _imported(self) -> dict[UUID, bool]:
        """Return for each run on the way here whether it came in as a bundle; runs that
        are not in this database are missing. One query, none if the way is in one run.
        """
        runs = {stretch.run for stretch in self.stretches}
        if runs == {self.run.id}:
            return {self.run.id: self.run.imported}
        return dict(Run.objects.filter(id__in=runs).values_list("id", "imported"))

    @property
    def leads_to_import(self) -> bool:
        """Return whether a run on the way here came in as a bundle, or is not in this
        database.
        """
        return not self.has_whole_way or any(self._imported.values())

    @property
    def has_whole_way(self) -> bool:
        """Return whether all runs on the way here are in this database."""
        runs = {stretch.run for stretch in self.stretches}
        return len(self._imported) == len(runs)

    @property
    def state(self) -> State:
        """Return the state as it was kept."""
        return {name: self.document[name] for name in PARTITIONS}

    @cached_property
    def going_on(self) -> State:
        """Return the state with each channel of the version that continues: new ones at
        their defaults; in another version migrated, if migrations lead there, else each
        value converted to its type there. Raises `InvalidValue` for one that does not
        fit, or if a migration fails, and `PayloadTooLarge`.
        """
        graph = self.graph
        kept_state = self.state
        if self.steps:
            for task in self.frontier.ready_calls():
                raise self._unseen_call(task)
            return migrated_state(
                graph, self.steps, kept_state, limit=conf().max_value_bytes
            )
        fresh = graph.fresh_state()
        state = {part: {**fresh[part], **kept_state[part]} for part in PARTITIONS}
        if self.retyped:
            self._convert(state)
        return state

    def _convert(self, state: State) -> None:
        """Convert each value of a state to its type in the version that continues."""
        limit = conf().max_value_bytes
        for part, values in state.items():
            for name, value in values.items():
                channel = self.graph.channels[name]
                if channel.partition != part:
                    version = self.graph.version
                    raise InvalidValue(
                        f"{name} is no channel of {part} in version {version}",
                        path=f"{part}.{name}",
                    )
                if value is not None or not channel.lax_none:
                    values[name] = channel.stage(value, limit=limit)


def load_departure(checkpoint: UUID | str) -> Departure:
    """Return the departure at a kept checkpoint. Raises `UnknownThing`, `TamperedRow`,
    `WrongKey`, `Erased`, and `IncompatibleGraph` if no version of its graph that is
    registered here could continue from it.
    """
    row = timeline.read_checkpoint(checkpoint)
    if row is None:
        raise unknown_thing("checkpoint", checkpoint)
    return departure_at(row)


def departure_at(row: Checkpoint) -> Departure:
    """Return what `load_departure` does, for a row that was read with its run."""
    refuse_erased(row.run)
    run_input = timeline.input_of(row.run)
    document = timeline.snapshot_of(row)
    if "stored" in document["open"]:
        # A store changed this without a signature: the run begins after it.
        return load_departure(f"{row.run.key}:at-{row.seq + 1}")
    graph = _graph_for(row, run_input, document)
    return Departure(row, row.run, graph, run_input, document)


def refuse_erased(run: Run) -> None:
    """Raise `Erased` if values of a run were erased, because nothing can depart from
    what is no longer there.
    """
    if run.erasure is not None:
        raise Erased(
            f"values of run {run.key} were erased, "
            "so nothing can begin at its checkpoints",
            run=str(run.id),
            record=str(run.erasure),
        )


def guards_at(point: Departure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each guarded channel of these the nodes whose gates guard it."""
    guarded = guards_of_each(point.stretches, point.graph, names)
    gates = [node.name for node in point.graph.nodes.values() if node.gate]

    # If a part of the way is missing, as it is for imported runs and their forks,
    # nobody knows who wrote what on it: every channel is guarded if there is any gate.
    if names and gates and not point.has_whole_way:
        return {name: guarded.get(name, (gates[0],)) for name in names}
    return guarded


def _graph_for(row: Checkpoint, run_input: Any, document: dict[str, Any]) -> Compiled:
    """Return the version with which the checkpoint was made; else the current one, if
    it has all that is live there. Raises `IncompatibleGraph`.
    """
    pinned = registry.find_graph(row.fingerprint)
    if pinned is not None:
        return pinned
    graph = registry.current(row.graph)
    missing = _missing(row, graph, document)
    if missing:
        raise IncompatibleGraph(
            f"version {row.version} of {row.graph} is not registered here, "
            f"and version {graph.version} lacks {', '.join(missing)}",
            graph=row.graph,
            missing=missing,
        )
    _require_same_start(row, graph, run_input, document)
    return graph


def _missing(row: Checkpoint, graph: Compiled, document: dict[str, Any]) -> list[str]:
    """Return what is live at a checkpoint and missing in this version of its graph."""
    frontier = Frontier.from_json(document["frontier"])
    open_ = OpenSuperstep.from_json(document["open"])
    # A token on an edge that is gone would start nothing, and its branch would be lost.
    missing = [f"edge {id}" for id in frontier.tokens if id not in graph.edge]
    pending = pending_parts(document["frontier"], document["open"])
    for edge in lost_ways(pending.ways_on, graph.edge):
        missing.append(f"edge {edge}")
    for node in sorted(_live_nodes(frontier, open_)):
        if node not in graph.nodes:
            missing.append(f"node {node}")
    missing += _missing_gates(graph, frontier, open_)
    # A migration may take channels out.
    if not _steps(row, graph):
        for name in {**document["scratch"], **document["artifacts"]}:
            if name not in graph.channels:
                missing.append(f"channel {name}")
    return missing


def _missing_gates(
    graph: Compiled, frontier: Frontier, open_: OpenSuperstep
) -> list[str]:
    if not frontier.waiting and not open_.tasks_asked:
        return []
    at_gates = {task.node for task in _asked_tasks(frontier, open_)}
    remaining = sorted(at_gates.intersection(graph.nodes))
    return [f"gate of {node}" for node in remaining if not graph.nodes[node].gate]


def _asked_tasks(frontier: Frontier, open_: OpenSuperstep) -> set[Task]:
    """Return the tasks about which a line that departs here asks people again. What
    others act on is judged again on it.
    """
    tasks = frontier.gated() | open_.without_renewals().tasks_asked
    return tasks - frontier.renewed()


def _live_nodes(frontier: Frontier, open_: OpenSuperstep) -> set[str]:
    """Return the nodes that wait, that are sent to, or that have a result."""
    nodes = {visit_of(key)[0] for key in frontier.waiting}
    nodes.update(target for target, _ in frontier.sends)
    nodes.update(task.node for task in open_.results)
    return nodes - {PATCH}


def _steps(row: Checkpoint, graph: Compiled) -> tuple[Migration, ...]:
    if row.version == graph.version:
        return ()
    migrations = registry.migrations(graph.name)
    return way_between(migrations, row.version, graph.version)


def _require_same_start(
    row: Checkpoint, graph: Compiled, run_input: Any, document: dict[str, Any]
) -> None:
    """Raise `IncompatibleGraph` if this version would not begin the tasks with which
    the open superstep of a checkpoint began, and so would do them again, or if the
    run's input does not fit it.
    """
    version = (
        f"version {row.version} of {row.graph} is not registered here, "
        f"and version {graph.version}"
    )
    open_ = OpenSuperstep.from_json(document["open"])
    frontier = Frontier.from_json(document["frontier"])
    if open_.results:
        unbegun = unplanned(graph, frontier, open_.results, stops=open_.without)
        if unbegun:
            raise IncompatibleGraph(
                f"{version} would not begin {', '.join(unbegun)}, "
                "which began in the superstep that is open",
                graph=row.graph,
            )
    try:
        graph.stage_input(run_input, limit=conf().max_value_bytes)
    except InvalidValue as error:
        raise IncompatibleGraph(
            f"{version} has another input: {error.message}", graph=row.graph
        ) from error


def effects_elsewhere(point: Departure, *, fenced: bool = False) -> list[Effect]:
    """Return the side effects that happened outside the path to the point, as
    `effects_off` does.
    """
    atomic = frozenset(node.name for node in point.graph.nodes.values() if node.atomic)
    return effects_off(Way(point.run.id, point.stretches, atomic), fenced=fenced)


def effects_unknown_here(point: Departure) -> list[Effect]:
    """Return an uncertain effect of each write and external node, for a run that came
    in as a bundle or comes from one. Nobody here can tell what it did before, so each
    needs a yes, even if an earlier fork was given one.
    """
    effects: list[Effect] = []
    for node in point.graph.nodes.values():
        if node.effect in ("write", "external"):
            # Any task stands for its node: a yes is given by node.
            task = Task(node.name, 1, 0)
            effects.append(Effect(task, node.effect, certain=False))
    return effects


def held_tasks_at(point: Departure) -> list[HeldTask]:
    """Return what waits for people at the point, as it was proposed. Two queries, none
    if nothing waits; one more for calls that wait, and those of `calls_of_line` for
    approved ones. Raises `UnknownThing` if the state of one of these calls is gone.
    """
    if point.document["frontier"]["waiting"]:
        _require_ready_calls(point)
    elif not point.open.tasks_asked:
        return []
    tasks = _asked_tasks(point.frontier, point.open)
    _require_asked(point)
    at = {"run": point.run.id, "line": point.checkpoint.line}
    nodes = {task.node for task in tasks}
    request_by_task: dict[Task, ApprovalRequest] = {}
    requests = ApprovalRequest.objects.filter(**at, node__in=nodes)
    for request in requests.exclude(kind=AUTHORITY_KIND):
        task = Task(request.node, request.visit, request.index)
        request_by_task[task] = request
    # The first revision is what the node proposed; edits of it are not carried over.
    first_writes = PendingWrite.objects.filter(**at, node__in=nodes, revision=1)
    rows_by_task: dict[Task, list[PendingWrite]] = {task: [] for task in tasks}
    own_writes = first_writes.exclude(channel=AUTHORITY)
    for row in own_writes.order_by("position"):
        task = Task(row.node, row.visit, row.index)
        if task in tasks:
            rows_by_task[task].append(row)

    # Whatever begins here asks again what these rows say, under new seals.
    protection = protection_of(point.run)
    for task, rows in rows_by_task.items():
        request = _whole_request(point, task, request_by_task.get(task), rows)
        sealed_rows.verify_rows([request, *rows], protection)

    def declared_order(task: Task) -> tuple[int, int, int]:
        return point.graph.order.get(task.node, -1), task.visit, task.index

    held_tasks: list[HeldTask] = []
    for task in sorted(rows_by_task, key=declared_order):
        request = request_by_task[task]
        held_tasks.append(_held_task(point, task, rows_by_task[task], request))
    _require_states_of_calls(held_tasks)
    return held_tasks


def _require_ready_calls(point: Departure) -> None:
    """Raise as `calls_of_line` does for the approved calls that wait at the point:
    people must not say yes to what could not run.
    """
    ready: list[Task] = []
    for task in point.frontier.ready_calls():
        node = point.graph.nodes.get(task.node)
        # Others were let run by people who were asked again, and have no arguments.
        if node is None or node.calls:
            ready.append(task)
    if ready:
        calls_of_line(point.run.id, point.checkpoint.line, ready)


def _require_states_of_calls(held_tasks: Sequence[HeldTask]) -> None:
    """Raise `UnknownThing` if the state from which a call was prepared is gone."""
    points: dict[Task, UUID | None] = {}
    for held in held_tasks:
        # A call is the one write of its task.
        if held.writes[0].channel == CALL:
            points[held.task] = held.prepared_from
    if not points:
        return
    rows = Checkpoint.objects.filter(id__in={*points.values()})
    there = {*rows.values_list("id", flat=True)}
    for task, prepared_from in points.items():
        if prepared_from not in there:
            raise state_is_gone(task)


def _require_asked(point: Departure) -> None:
    """Raise `WrongStatus` in a replay, which asked nobody."""
    row = lines.line_row(point.run, point.checkpoint.line)
    if row is not None and row.travel == Travel.REPLAY:
        raise WrongStatus(
            f"{point.run.key} is a replay and asked nobody at this checkpoint; "
            "choose that of its origin",
            status=point.run.status,
        )


def _whole_request(
    point: Departure,
    task: Task,
    request: ApprovalRequest | None,
    rows: Sequence[PendingWrite],
) -> ApprovalRequest:
    """Return the request of a task that waits. Raises `TamperedRow` if it is gone, or
    one of the writes about which it asks.
    """
    # A task waits with one write at least: a request for none was never made.
    if request is None or not rows or len(rows) != request.writes:
        raise TamperedRow(
            f"{task} of run {point.run.key} waits at this checkpoint, "
            "and what it proposed is not all there",
            row=f"approvals_approvalrequest {point.run.id} {task}",
        )
    return request


def _held_task(
    point: Departure, task: Task, rows: Sequence[PendingWrite], request: ApprovalRequest
) -> HeldTask:
    policy = request.policy
    guard = _guard(point, task, request, [row.channel for row in rows])
    gate = point.graph.nodes[guard].gate or Gate()
    # Older requests did not record what the gate's functions read.
    reads = None
    if policy.get("reads") is not None:
        reads = tuple(policy["reads"])
    reviewers = None
    if task.node == PATCH:
        reviewers = tuple(policy["reviewers"])
    return HeldTask(
        task,
        tuple(_proposal(point, gate, task, row) for row in rows),
        guard,
        # On this line nobody has re-opened anything.
        why_at_first(request, protection_of(point.run)) or None,
        request.input_hash,
        request.prepared_from,
        reads=reads,
        reviewers=reviewers,
    )


def _proposal(point: Departure, gate: Gate, task: Task, row: PendingWrite) -> HeldWrite:
    """Return the write as its node proposed it, with the label that the node gave, if
    it gave one. In another version of the graph it has the value that is set there when
    it is signed.
    """
    shown = read_value(row, "shown") or {}
    version = pending_writes.base_of(row).version
    value = read_value(row, "value")
    question = stored_question(shown)
    plain = HeldWrite(
        task,
        row.position,
        row.channel,
        value,
        version=version,
        question=question,
        form=stored_form(shown),
    )
    presented = present(
        gate, node=task.node, input=point.input, state=point.state, writes=[plain]
    )["writes"]
    label = str(shown.get("label") or row.label)
    fitted = plain
    if question is not None:
        point.require_askable(task, row.channel)
    else:
        fitted = replace(plain, value=point.fitted(task, row.channel, value))
    # A label that the gate gives by itself is not the node's.
    if presented[0]["label"] == label:
        return fitted
    return replace(fitted, label=label)


def _guard(
    point: Departure, task: Task, request: ApprovalRequest, channels: Sequence[str]
) -> str:
    """Return the node whose gate held a task: its own, else the one that its request
    names, else the one that guards what it writes.
    """
    node = point.graph.nodes.get(task.node)
    if node is not None and node.gate:
        return task.node
    named = point.graph.nodes.get(request.policy.get("gate", ""))
    if named is not None and named.gate:
        return named.name
    gates: set[str] = set()
    for nodes in guards_at(point, channels).values():
        gates.update(nodes)
    if len(gates) != 1:
        raise WrongStatus(
            f"{task} waits at this checkpoint for a gate that cannot be told; "
            "choose the checkpoint before it",
            task=str(task),
            gates=sorted(gates),
        )
    return gates.pop()
