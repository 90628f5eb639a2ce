"""The reducer: from results in declared order to the next state and frontier, after a
superstep or a settlement. Pure.

Arguments are never changed; containers that do not change are shared with the old
state. The runner and `play` call this, live and in recovery alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from orchestrator.engine.errors import ConflictingWrites, CountersignError, InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import is_authority, is_call
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.effect import APPROVED, DIVERGED, ERROR
from orchestrator.engine.graphs.gate import way_of
from orchestrator.engine.graphs.reducer import First, Replace
from orchestrator.engine.graphs.trace import Landing, address_of, is_memory
from orchestrator.engine.step.flow import Finished, Flow
from orchestrator.engine.step.frontier import (
    READY,
    ErrorInfo,
    Frontier,
    Part,
    visit_key,
    visit_of,
)
from orchestrator.engine.step.held_patch import (
    PATCH,
    is_patch,
    is_patch_held,
    settled_patch,
)
from orchestrator.engine.step.memory import apart
from orchestrator.engine.step.output import Output, WriteValue, output_of
from orchestrator.engine.step.plan import Planned, Start
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.identity import Task
from orchestrator.engine.values.ops import Op, put

__all__ = [
    "Finished",
    "HeldWrite",
    "Output",
    "Result",
    "Settled",
    "StepResult",
    "WriteValue",
    "output_of",
    "reduce_step",
    "settle_step",
    "settleable",
]

TaskWrites = Sequence[tuple[Task, WriteValue]]
"""Writes with the tasks that made them, in the order in which they apply."""
StaysOpen = Callable[["Settled", State], bool]
"""Returns whether a settled gate stays open after all, where it would be applied on this
state.
"""


@frozen
class Result:
    """The end of a task. `gated`: its writes are held and nothing flows. `error`: it
    takes the error edge. `outcome` "approved": its gate needed no signature;
    "diverged": a replay ends here.
    """

    output: Output | None = None
    error: ErrorInfo | None = None
    gated: bool = False
    outcome: str | None = None

    def held(self, task: Task) -> list["HeldWrite"]:
        """Return the writes that the task's gate holds."""
        if not self.gated or self.error is not None or self.output is None:
            return []
        held: list[HeldWrite] = []
        for position, write in enumerate(self.output.writes):
            held.append(
                HeldWrite(
                    task,
                    position,
                    write.channel,
                    write.value,
                    write.label,
                    write.version,
                    write.question,
                    write.form,
                )
            )
        return held


@frozen
class HeldWrite:
    """A write that a gate holds. `position`: among the task's writes, from 0.
    `version`, `question` and `form`: as in `WriteValue`.
    """

    task: Task
    position: int
    channel: str
    value: Json
    label: str | None = None
    version: int | None = None
    question: dict[str, Json] | None = None
    form: dict[str, Json] | None = None


@frozen
class Settled:
    """A gated task as people decided it: the writes to apply, in order of position, and
    the outcome. `shows` are further channels that the decision was bound to, if it was
    held by a gate other than the node's own.
    """

    task: Task
    writes: tuple[WriteValue, ...]
    outcome: str
    shows: tuple[str, ...] = ()

    @property
    def starts_call(self) -> bool:
        """Return whether it allows a prepared task to run, rather than being a write of
        a task that has run.
        """
        return any(is_call(write.channel) for write in self.writes)


@frozen
class StepResult:
    """State and frontier after a step, with its changes by channel, newly held writes,
    ended visits, and landings in memory.
    """

    state: State
    frontier: Frontier
    changes: dict[str, Op] = field(default_factory=dict)
    held: tuple[HeldWrite, ...] = ()
    finished: tuple[Finished, ...] = ()
    memory: tuple[Landing, ...] = ()


NOTHING = Output()


def reduce_step(
    compiled: Compiled,
    planned: Planned,
    state: State,
    results: Mapping[Task, Result],
) -> StepResult:
    """Reduce a superstep, all of whose tasks have a result. Raises `ConflictingWrites`
    naming both tasks, and `InvalidValue` if a router or a reducer fails.
    """
    writes = _flowing_writes(planned, results)
    # A single write conflicts with none.
    if len(writes) > 1:
        _refuse_conflicts(compiled, writes)
    state_writes, landings = apart(writes)
    after, changes, written = _apply_writes(
        compiled, planned.frontier, state, state_writes
    )

    # Routers read the state after all writes, so visits flow only now.
    held: list[HeldWrite] = []
    waiting = dict(planned.frontier.waiting)
    parts_by_visit: dict[tuple[str, int], list[Part]] = {}
    for start in planned.starts:
        task = start.task
        result = results[task]
        part = _part(compiled, start, result)
        # Other tasks of the visit of an approved call may still wait.
        already: tuple[Part, ...] = ()
        if waiting:
            already = waiting.pop(visit_key(task.node, task.visit), ())
        parts = parts_by_visit.setdefault(task[:2], [*already])
        if start.is_call:
            parts[task.index] = part
        else:
            parts.append(part)
        if result.gated:
            held += result.held(task)
    frontier = planned.frontier
    if frontier.waiting:
        frontier = replace(frontier, waiting=waiting)
    flow = Flow(compiled, frontier, after, written)
    for (node, visit), parts in parts_by_visit.items():
        flow.take(node, visit, tuple(parts))
    return StepResult(
        after, flow.frontier(), changes, tuple(held), tuple(flow.finished), landings
    )


def _missing_results(planned: Planned, results: Mapping[Task, Result]) -> InvalidValue:
    missing = [str(start.task) for start in planned.starts if start.task not in results]
    return InvalidValue(f"no result for {', '.join(missing)}", tasks=missing)


def _flowing_writes(
    planned: Planned, results: Mapping[Task, Result]
) -> list[tuple[Task, WriteValue]]:
    """Return the writes that no gate holds and no error discards. Raises `InvalidValue`
    if a task has no result.
    """
    writes: list[tuple[Task, WriteValue]] = []
    for start in planned.starts:
        result = results.get(start.task)
        if result is None:
            raise _missing_results(planned, results)
        if result.gated or result.error is not None or not result.output:
            continue
        for write in result.output.writes:
            writes.append((start.task, write))
    return writes


def settle_step(
    compiled: Compiled,
    frontier: Frontier,
    state: State,
    settled: Sequence[Settled],
) -> StepResult:
    """Apply settled gates one after another in the given order, then let their visits
    flow on the state after all of them.

    Raises `InvalidValue` for a task that does not wait for a decision, and if a router
    or a reducer fails.
    """
    # Conflicts are not looked for: unlike tasks, settled gates have a recorded order.
    writes: list[tuple[Task, WriteValue]] = []
    for settlement in settled:
        writes += _writes_of(settlement)
    state_writes, landings = apart(writes)
    after, changes, written = _apply_writes(compiled, frontier, state, state_writes)

    waiting = _waiting_after(frontier, settled)
    if is_patch_held(frontier):
        without_patch = settled_patch(frontier, waiting)
        frontier = without_patch or replace(frontier, waiting=waiting)
        waiting = frontier.waiting

    # A patch is no node, so only visits of nodes flow. Those that still have a gated
    # task go on waiting.
    patches: dict[str, tuple[Part, ...]] = {}
    visits: list[tuple[str, int]] = []
    for key, parts in waiting.items():
        node, visit = visit_of(key)
        if node == PATCH:
            patches[key] = parts
        else:
            visits.append((node, visit))
    visits.sort(key=lambda visit: (compiled.order[visit[0]], visit[1]))
    flow = Flow(compiled, replace(frontier, waiting=patches), after, written)
    for node, visit in visits:
        flow.take(node, visit, waiting[visit_key(node, visit)])
    return StepResult(
        after, flow.frontier(), changes, (), tuple(flow.finished), landings
    )


def _waiting_after(
    frontier: Frontier, settled: Sequence[Settled]
) -> dict[str, tuple[Part, ...]]:
    """Return the waiting visits with the outcome of each settled task. Raises
    `InvalidValue` for a task that does not wait for a decision.
    """
    waiting = dict(frontier.waiting)
    for settlement in settled:
        task = settlement.task
        key = visit_key(task.node, task.visit)
        parts = list(waiting.get(key, ()))
        if task.index >= len(parts) or parts[task.index].status != "gated":
            raise InvalidValue(f"{task} does not wait for a decision", task=str(task))
        # The task's goto and sends stay in its part, and follow the outcome. A call has
        # none before it has run, and its edges wait for that.
        status = READY if settlement.starts_call else way_of(settlement.outcome)
        parts[task.index] = replace(parts[task.index], status=status, renews=False)
        waiting[key] = tuple(parts)
    return waiting


def _writes_of(settlement: Settled) -> list[tuple[Task, WriteValue]]:
    """Return what a settlement reduces: an approved call changes nothing by itself."""
    if settlement.starts_call:
        return []
    return [(settlement.task, write) for write in settlement.writes]


def settleable(
    compiled: Compiled,
    frontier: Frontier,
    state: State,
    settled: Sequence[Settled],
    stays_open: StaysOpen | None = None,
) -> tuple[list[Settled], list[Settled]]:
    """Split gates that were settled on this state, in the order of their last
    decisions: those that apply, and those that come back because an earlier one changes
    what they were decided on.

    `stays_open` is asked once about each that would apply something. One that stays open
    is in neither list, nor are the other gates of its patch.
    """
    settling = _Settling(compiled, state, frontier, stays_open)
    for settlement in settled:
        # A patch needs all of its gates.
        if _patch_of(settlement) not in settling.open_patches:
            settling.take(settlement)
    return settling.apply, settling.back


@frozen
class _Applied:
    """The state and the frontier after some of the settled gates."""

    state: State
    frontier: Frontier


class _Settling:
    """Settled gates as they are looked at one after another: the `now` after those that
    apply, the patches that stay open, and where each patch was applied.
    """

    def __init__(
        self,
        compiled: Compiled,
        state: State,
        frontier: Frontier,
        stays_open: StaysOpen | None,
    ) -> None:
        self.apply: list[Settled] = []
        self.back: list[Settled] = []
        self.open_patches: set[int] = set()
        self._compiled = compiled
        self._decided_on = state
        self._stays_open = stays_open
        self._now = _Applied(state, frontier)
        self._landed: set[str] = set()
        self._before_patch: dict[int, _Applied] = {}

    def take(self, settlement: Settled) -> None:
        """Apply a gate, unless it comes back or stays open."""
        # The gates of a patch decide on one state: an approval by one of them changes
        # nothing for the others.
        seen = self._now
        patch = _patch_of(settlement)
        if patch:
            seen = self._before_patch.setdefault(patch, seen)
        depends_on = _depends_on(self._compiled, settlement)
        has_changed = _has_changed(depends_on, self._decided_on, seen.state)
        if depends_on & self._landed or has_changed:
            self.back.append(settlement)
        elif self._is_kept_open(settlement, seen.state):
            self._leave_out(patch, seen)
        else:
            self._apply(settlement)

    def _is_kept_open(self, settlement: Settled, state: State) -> bool:
        # A gate that applies nothing needs no veto.
        if self._stays_open is None or not settlement.writes:
            return False
        return self._stays_open(settlement, state)

    def _leave_out(self, patch: int, before: _Applied) -> None:
        """Leave the patch of a gate that stays open, if it has one, out as a whole."""
        if not patch:
            return
        self.open_patches.add(patch)
        # Its gates stand together, so nothing else has been applied since.
        self.apply = [other for other in self.apply if _patch_of(other) != patch]
        self._now = before

    def _apply(self, settlement: Settled) -> None:
        self.apply.append(settlement)
        # Later gates are compared with the state after this one.
        state_writes, landings = apart(_writes_of(settlement))
        self._landed.update(landing.channel for landing in landings)
        now = self._now
        state, _, written = _apply_writes(
            self._compiled, now.frontier, now.state, state_writes
        )
        self._now = _Applied(state, replace(now.frontier, written=written))


def _patch_of(settlement: Settled) -> int:
    """Return the number of the patch that a gate decides on, 0 if it is a node's."""
    return settlement.task.visit if is_patch(settlement.task) else 0


def _has_changed(
    channels: set[str],
    before: State,
    now: State,
) -> bool:
    """Return whether one of these channels of the state differs. Memory is no part of
    the state: its landings are compared by channel.
    """
    in_state = [name for name in channels if not is_memory(name)]
    return any(_value_of(before, name) != _value_of(now, name) for name in in_state)


def _depends_on(compiled: Compiled, settlement: Settled) -> set[str]:
    """Return the channels whose value was part of the decision: bound bases of approved
    writes, and the channels that the gate shows.
    """
    channels = set(settlement.shows)
    for write in settlement.writes:
        if compiled.channels[write.channel].bound:
            channels.add(write.channel)
    if settlement.writes and not is_patch(settlement.task):
        gate = compiled.nodes[settlement.task.node].gate
        if gate:
            # What reviewers saw beside the writes is part of what they decided.
            channels.update(gate.shows)
    return channels


def _value_of(state: State, channel: str) -> Json:
    partition = "artifacts" if channel in state["artifacts"] else "scratch"
    return state[partition][channel]


def _part(
    compiled: Compiled,
    start: Start,
    result: Result,
) -> Part:
    if result.error is not None:
        return Part(ERROR, error=result.error)
    if result.outcome == DIVERGED:
        return Part(DIVERGED)
    output = result.output or NOTHING
    if result.gated and any(is_call(write.channel) for write in output.writes):
        # It starts once people have approved, with what it was prepared from.
        renews = any(is_authority(write.channel) for write in output.writes)
        return Part("gated", payload=start.payload, cause=start.error, renews=renews)
    if result.gated:
        status = "gated"
    elif compiled.nodes[start.task.node].gated:
        # Its gate waived approval, which counts as one.
        status = APPROVED
    else:
        status = "done"
    return Part(status, output.goto, output.sends)


def _refuse_conflicts(compiled: Compiled, writes: TaskWrites) -> None:
    """Raise `ConflictingWrites` if two tasks replace the same channel."""
    owners: dict[str, Task] = {}
    for task, write in writes:
        owner = owners.setdefault(write.channel, task)
        # Writes of one task have an order, so it may replace a channel several times.
        if owner == task or compiled.channels[write.channel].reducer != Replace:
            continue
        what = write.channel
        cure = "; if the later should win, use Last"
        if is_memory(write.channel):
            what = f"the memory of {' / '.join(address_of(write.channel))}"
            cure = ""
        message = f"{owner} and {task} both replace {what} in one superstep{cure}"
        raise ConflictingWrites(
            message,
            channel=write.channel,
            tasks=[str(owner), str(task)],
        )


def _apply_writes(
    compiled: Compiled,
    frontier: Frontier,
    state: State,
    writes: TaskWrites,
) -> tuple[State, dict[str, Op], tuple[str, ...]]:
    """Return the state with these writes, applied in their order; the changes by
    channel; and the First channels that are written by now.
    """
    if not writes:
        return state, {}, frontier.written
    writes_by_channel: dict[str, list[tuple[Task, WriteValue]]] = {}
    for task, write in writes:
        writes_by_channel.setdefault(write.channel, []).append((task, write))

    # Partitions are copied, values are shared: a reducer never changes its old value.
    after = dict(state)
    for partition in after:
        after[partition] = dict(state[partition])
    changes: dict[str, Op] = {}
    written = set(frontier.written)
    for name, channel_writes in writes_by_channel.items():
        channel = compiled.channels[name]
        values = after["artifacts" if channel.artifact else "scratch"]
        values[name], changes[name] = _reduce_channel(
            compiled, name, values[name], channel_writes, frontier
        )
        # By its name, which an author's own reducer may have too.
        is_first = channel.reducer.name == First.name and channel.reducer == First
        if is_first:
            written.add(name)
    return after, changes, tuple(sorted(written))


def _reduce_channel(
    compiled: Compiled,
    name: str,
    old: Json,
    writes: TaskWrites,
    frontier: Frontier,
) -> tuple[Json, Op]:
    """Return the channel's value after these writes, and the change. Raises the
    reducer's own error, naming the tasks.
    """
    # First cannot tell from the value: a default may have been written.
    unset = name not in frontier.written
    values: list[Json] = []
    has_patch = False
    for task, write in writes:
        values.append(write.value)
        has_patch = has_patch or task.node == PATCH
    try:
        if has_patch:
            return _reduce_with_patch(
                compiled,
                name,
                old,
                writes,
                unset=unset,
            )
        return compiled.channels[name].reduce_all(
            old,
            values,
            unset=unset,
        )
    except CountersignError as error:
        tasks = list(dict.fromkeys(str(task) for task, _ in writes))
        message = f"{', '.join(tasks)}: {error.message}"
        facts = {**error.facts, "tasks": tasks}
        raise type(error)(message, **facts) from error


def _reduce_with_patch(
    compiled: Compiled,
    name: str,
    old: Json,
    writes: TaskWrites,
    *,
    unset: bool,
) -> tuple[Json, Op]:
    """Reduce writes one of which is a patch: it replaces the value that was there."""
    value = old
    for task, write in writes:
        if is_patch(task):
            # A patch says what the value is to be, not what a reducer is to add.
            value = write.value
        else:
            value, _ = compiled.channels[name].reduce_all(
                value,
                [write.value],
                unset=unset,
            )
        unset = False
    return value, put(value)
