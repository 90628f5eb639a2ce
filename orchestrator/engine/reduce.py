"""What a superstep or a settlement comes to: the next state and frontier, from results in declared order. Pure.

Arguments are never changed; containers that do not change are shared with the old state. The runner and `play` call
this, live and in recovery alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import APPROVED, DIVERGED, ERROR
from orchestrator.engine.errors import ConflictingWrites, CountersignError, InvalidValue
from orchestrator.engine.flow import Finished, Flow
from orchestrator.engine.frontier import ErrorInfo, Frontier, Part, visit_key, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH, is_patch, is_patch_held, settled_patch
from orchestrator.engine.identity import Task
from orchestrator.engine.memory import apart
from orchestrator.engine.ops import Op, put
from orchestrator.engine.output import Output, WriteValue, output_of
from orchestrator.engine.plan import Planned
from orchestrator.engine.reducer import First, Replace
from orchestrator.engine.trace import Landing, address_of, is_memory

__all__ = [
    "Finished", "HeldWrite", "Output", "Result", "Settled", "Step", "WriteValue", "output_of", "reduce_step",
    "settle_step", "settleable",
]  # fmt: skip


@frozen
class Result:
    """How a task ended. `gated`: its writes are held and nothing flows. `error`: it takes the error edge. `outcome`
    "approved": its gate needed nobody; "diverged": a replay ends here.
    """

    output: Output | None = None
    error: ErrorInfo | None = None
    gated: bool = False
    outcome: str | None = None

    def held(self, task: Task) -> list["HeldWrite"]:
        """The writes that its gate holds."""
        if not self.gated or self.error is not None or self.output is None:
            return []
        return [HeldWrite(task, n, w.channel, w.value, w.label, w.version) for n, w in enumerate(self.output.writes)]


@frozen
class HeldWrite:
    """A write that a gate holds. `position`: among the task's writes, from 0. `version`: as in `WriteValue`."""

    task: Task
    position: int
    channel: str
    value: Json
    label: str | None = None
    version: int | None = None


@frozen
class Settled:
    """A gated task as people decided it: the writes to apply, in order of position, and the outcome. `shows` are
    further channels that the decision was bound to, where the gate that held it is not the node's own.
    """

    task: Task
    writes: tuple[WriteValue, ...]
    outcome: str
    shows: tuple[str, ...] = ()


@frozen
class Step:
    """State and frontier after it, changes by channel, writes newly held, visits that ended, landings in memory."""

    state: State
    frontier: Frontier
    changes: dict[str, Op] = field(default_factory=dict)
    held: tuple[HeldWrite, ...] = ()
    finished: tuple[Finished, ...] = ()
    memory: tuple[Landing, ...] = ()


NOTHING = Output()


def reduce_step(compiled: Compiled, planned: Planned, state: State, results: Mapping[Task, Result]) -> Step:
    """Reduce a superstep, all of whose tasks have a result. Raises `ConflictingWrites` naming both tasks, and
    `InvalidValue` where a router or a reducer fails.
    """
    missing = [str(start.task) for start in planned.starts if start.task not in results]
    if missing:
        raise InvalidValue(f"no result for {', '.join(missing)}", tasks=missing)
    given = [(start.task, results[start.task]) for start in planned.starts]
    flowing = [(task, result.output) for task, result in given if not result.gated and result.error is None]
    applied = [(task, write) for task, output in flowing if output for write in output.writes]
    _refuse_conflicts(compiled, applied)
    applied, memory = apart(applied)
    after, changes, written = _reduced(compiled, planned.frontier, state, applied)
    flow = Flow(compiled, planned.frontier, after, written)
    visits: dict[tuple[str, int], list[Part]] = {}
    for task, result in given:
        visits.setdefault(task[:2], []).append(_part(compiled, task, result))
    for (node, visit), parts in visits.items():
        flow.take(node, visit, tuple(parts))
    held = tuple([write for task, result in given if result.gated for write in result.held(task)])
    return Step(after, flow.frontier(), changes, held, tuple(flow.finished), memory)


def settle_step(compiled: Compiled, frontier: Frontier, state: State, settled: Sequence[Settled]) -> Step:
    """Apply settled gates, one after another as given; then let their visits flow, on the state after all of them.

    Raises `InvalidValue` for a task that waits for nobody, and where a router or a reducer fails.
    """
    applied, memory = apart([(one.task, write) for one in settled for write in one.writes])
    after, changes, written = _reduced(compiled, frontier, state, applied)
    waiting = dict(frontier.waiting)
    for one in settled:
        key = visit_key(one.task.node, one.task.visit)
        parts = list(waiting.get(key, ()))
        if one.task.index >= len(parts) or parts[one.task.index].status != "gated":
            raise InvalidValue(f"{one.task} does not wait for a decision", task=str(one.task))
        parts[one.task.index] = replace(parts[one.task.index], status=one.outcome)
        waiting[key] = tuple(parts)
    if is_patch_held(frontier):
        frontier = settled_patch(frontier, waiting) or replace(frontier, waiting=waiting)
        waiting = frontier.waiting
    patches = {key: parts for key, parts in waiting.items() if visit_of(key)[0] == PATCH}
    flow = Flow(compiled, replace(frontier, waiting=patches), after, written)
    visits = [visit_of(key) for key in waiting if key not in patches]
    for node, visit in sorted(visits, key=lambda v: (compiled.order[v[0]], v[1])):
        flow.take(node, visit, waiting[visit_key(node, visit)])
    return Step(after, flow.frontier(), changes, (), tuple(flow.finished), memory)


def settleable(
    compiled: Compiled, frontier: Frontier, state: State, settled: Sequence[Settled]
) -> tuple[list[Settled], list[Settled]]:
    """Of gates settled on this state, in the order of their last decisions: those that apply, and those that come
    back because an earlier one moves what they were decided on.
    """
    apply: list[Settled] = []
    back: list[Settled] = []
    now, written = state, frontier
    landed: set[str] = set()
    before_patch: dict[int, State] = {}
    for one in settled:
        depends = _depends_on(compiled, one)
        # The gates of a patch decide on one state: what one of them lets pass moves nothing for the others.
        seen = before_patch.setdefault(one.task.visit, now) if is_patch(one.task) else now
        if depends & landed or any(_at(state, name) != _at(seen, name) for name in depends if not is_memory(name)):
            back.append(one)
            continue
        apply.append(one)
        flowing, memory = apart([(one.task, write) for write in one.writes])
        landed |= {landing.channel for landing in memory}
        now, _, names = _reduced(compiled, written, now, flowing)
        written = replace(written, written=names)
    return apply, back


def _depends_on(compiled: Compiled, one: Settled) -> set[str]:
    """The channels whose value was part of the decision: bound bases of approved writes, and what the gate shows."""
    gate = None if is_patch(one.task) else compiled.nodes[one.task.node].gate
    bound = {write.channel for write in one.writes if compiled.channels[write.channel].bound}
    return bound | set(one.shows) | set(gate.shows if gate and one.writes else ())


def _at(state: State, channel: str) -> Json:
    return state["artifacts" if channel in state["artifacts"] else "scratch"][channel]


def _part(compiled: Compiled, task: Task, result: Result) -> Part:
    if result.error is not None:
        return Part(ERROR, error=result.error)
    if result.outcome == DIVERGED:
        return Part(DIVERGED)
    output = result.output or NOTHING
    status = "gated" if result.gated else APPROVED if compiled.nodes[task.node].gated else "done"
    return Part(status, output.goto, output.sends)


def _refuse_conflicts(compiled: Compiled, applied: Sequence[tuple[Task, WriteValue]]) -> None:
    owners: dict[str, Task] = {}
    for task, write in applied:
        owner = owners.setdefault(write.channel, task)
        if owner != task and compiled.channels[write.channel].reducer == Replace:
            what, cure = write.channel, "; if the later should win, use Last"
            if is_memory(write.channel):
                what, cure = f"the memory of {' / '.join(address_of(write.channel))}", ""
            message = f"{owner} and {task} both replace {what} in one superstep{cure}"
            raise ConflictingWrites(message, channel=write.channel, tasks=[str(owner), str(task)])


def _reduced(
    compiled: Compiled, frontier: Frontier, state: State, applied: Sequence[tuple[Task, WriteValue]]
) -> tuple[State, dict[str, Op], tuple[str, ...]]:
    """The state with these writes, in their order; what changed; and the First channels that are written by now."""
    if not applied:
        return state, {}, frontier.written
    updates: dict[str, list[tuple[Task, WriteValue]]] = {}
    for task, write in applied:
        updates.setdefault(write.channel, []).append((task, write))
    after = {name: dict(values) for name, values in state.items()}
    changes: dict[str, Op] = {}
    for name, writes in updates.items():
        partition = after[compiled.channels[name].partition]
        partition[name], changes[name] = _reduce_channel(compiled, name, partition[name], writes, frontier)
    firsts = {name for name in updates if compiled.channels[name].reducer == First}
    return after, changes, tuple(sorted({*frontier.written, *firsts}))


def _patched(
    compiled: Compiled, name: str, old: Json, writes: Sequence[tuple[Task, WriteValue]], frontier: Frontier
) -> tuple[Json, Op]:
    """As `_reduce_channel`, where one of the writes is a patch: it takes the place of what was there."""
    unset = name not in frontier.written
    for task, write in writes:
        if is_patch(task):
            old = write.value
        else:
            old, _ = compiled.channels[name].reduce_all(old, [write.value], unset=unset)
        unset = False
    return old, put(old)


def _reduce_channel(
    compiled: Compiled, name: str, old: Json, writes: Sequence[tuple[Task, WriteValue]], frontier: Frontier
) -> tuple[Json, Op]:
    try:
        if any(is_patch(task) for task, _ in writes):
            return _patched(compiled, name, old, writes, frontier)
        given = [write.value for _, write in writes]
        return compiled.channels[name].reduce_all(old, given, unset=name not in frontier.written)
    except CountersignError as error:
        tasks = list(dict.fromkeys(str(task) for task, _ in writes))
        raise type(error)(f"{', '.join(tasks)}: {error.message}", **{**error.facts, "tasks": tasks}) from error
