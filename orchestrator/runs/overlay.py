"""What is laid over a point before a run goes on from it: a patch, and what people were asked there, asked anew.

Validated as a whole before anything is written. A value in a guarded channel is not set but held, until the people of
its gate have signed it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.utils import timezone

from approvals.gates.new_requests import Asker, Moment, NewRequests, ReachedGate, patch_gate, prepare_requests
from approvals.gates.unsigned_changes import sentence_of
from checkpoints import versions
from checkpoints.conf import conf
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, Payload
from orchestrator.engine import Gate, Task, canonical
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.held_patch import PATCH, hold_patch, next_patch, renumbered_patches
from orchestrator.engine.migration import written_firsts
from orchestrator.engine.patch import PARTITIONS, json_of, patched
from orchestrator.engine.reduce import HeldWrite
from orchestrator.engine.reducer import First
from orchestrator.engine.requests import is_applied_as_one, named_reviewers
from orchestrator.execution import memory as execution_memory
from orchestrator.execution.adoption.state_change import guards_of_migration, without_guarded
from orchestrator.runs.departure import Departure, HeldTask, State, guards_at
from orchestrator.runs.travel_plan import Change

Patch = Mapping[str, Any] | Callable[[State], Any] | None
"""{partition: merge patch or list of operations}; or a function that changes a copy of the state, or returns it."""


@dataclass(frozen=True)
class Overlay:
    """The state to go on with. `given` is the patch as it is kept; `change` says what it changes, `held` what of it
    waits for signatures, by gate.
    """

    state: State
    change: Change
    held: tuple[HeldTask, ...] = ()
    given: Any = None


def lay_over(point: Departure, patch: Patch, *, by: str = "", asks: bool = True) -> Overlay:
    """The point's state with a patch over it, made by the person of that name. What another version of the graph makes
    of a value is a patch as well. Without `asks` nothing waits for signatures: for a replay, which has nobody to ask.

    Raises `InvalidValue` naming path, rule and value, and `PayloadTooLarge`.
    """
    fitted = point.going_on
    first = point.graph.fresh_state() if point.steps else fitted
    before = {part: {**first[part], **point.state[part]} for part in PARTITIONS}
    after = _checked(point, fitted, patch) if patch else fitted
    if point.run.imported:
        before = _without_guarded(point, before)
    # Of an imported run also what a patch sets to the value with which a run begins.
    names = _changed(after, compared_with=(before, fitted) if point.run.imported else (before,))
    guards = _guards(point, names) if asks else {}
    state = without_guarded(point.graph, before if point.run.imported else point.state, after, guards)
    held = _held_tasks(point, after, guards, of_person={*_changed(after, compared_with=(fitted,))} & {*names}, by=by)
    given = {part: {n: after[part][n] for n in names if n in after[part]} for part in PARTITIONS} if names else None
    change = Change(
        tuple(sorted(names)),
        {channel: nodes[0] for channel, nodes in guards.items()},
        tuple(one.task for one in held),
        tuple(one.guard for one in held),
    )
    return Overlay(state, change, held, given)


def _changed(after: State, *, compared_with: Sequence[State]) -> list[str]:
    """The channels that one of these states has otherwise."""
    return [
        name
        for part in PARTITIONS
        for name in after[part]
        if any(_differs(old, after, part, name) for old in compared_with)
    ]


def _guards(point: Departure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Of those of these channels that are guarded the nodes whose gates people must sign at."""
    guards = guards_at(point, names)
    for channel, node in _guards_of_steps(point).items():
        guards[channel] = (node, *(other for other in guards.get(channel, ()) if other != node))
    return guards


def _held_tasks(
    point: Departure, after: State, guards: Mapping[str, Sequence[str]], *, of_person: set[str], by: str
) -> tuple[HeldTask, ...]:
    """What waits for signatures, one task a gate. Whoever patches is named, not who wrote what else changes."""
    number = next_patch(renumbered_patches(point.frontier))
    held = []
    for index, gate in enumerate(dict.fromkeys(node for nodes in guards.values() for node in nodes)):
        channels = [channel for channel, nodes in guards.items() if gate in nodes]
        patched = not of_person.isdisjoint(channels)
        reason = f"{by or 'The system'} set this by a patch" if patched else _reading(point)
        held.append(_held(after, gate, channels, Task(PATCH, number, index), reason))
    return tuple(held)


def _without_guarded(point: Departure, state: State) -> State:
    """The state of an imported run without what people must sign: guarded channels are as a run begins with them, so
    that what they hold counts as a patch.
    """
    fresh = point.graph.fresh_state()
    guarded = guards_at(point, [name for part in PARTITIONS for name in state[part]])
    return {part: {n: fresh[part].get(n) if n in guarded else v for n, v in state[part].items()} for part in PARTITIONS}


def _guards_of_steps(point: Departure) -> dict[str, str]:
    """The gates that what a migration makes of the point's state must pass, as where the run itself goes on by it."""
    if not point.steps:
        return {}
    old = versions.structure_of(point.checkpoint.fingerprint)
    return guards_of_migration(point.stretches, old, point.graph, point.state, point.going_on)


def _reading(point: Departure) -> str:
    if point.run.imported:
        return "This value came in with an imported run"
    if point.steps:
        return f"The migration from {', '.join(step.name for step in point.steps)} set this"
    return f"Version {point.graph.version} of {point.graph.name} reads this value otherwise than it was written"


def _checked(point: Departure, before: State, patch: Patch) -> State:
    """The patched state, each channel that changed of its type."""
    limit = conf().max_value_bytes
    if callable(patch):
        patch = _made_by(patch, before)
    patch = json_of(patch) if patch else patch
    if patch and len(canonical.encode(patch)) > limit:
        raise PayloadTooLarge(f"a patch has at most {limit:,} bytes", path="", limit=limit)
    return patched(before, patch or {}, graph=point.graph, limit=limit)


def _made_by(patch: Callable[[State], Any], before: State) -> dict[str, list[dict[str, Any]]]:
    """The operations that a function comes to: what it changed in its copy of the state, and what it returned. What it
    does not mention stays as it is.
    """
    copied = {part: canonical.normalised(before[part]) for part in PARTITIONS}
    returned = patch(copied)
    for given in (copied, {} if returned is None else returned):
        if not isinstance(given, dict) or set(given) - {*PARTITIONS}:
            raise InvalidValue(f"a function may patch {' and '.join(PARTITIONS)}, nothing else", path="")
        if not all(isinstance(values, dict) for values in given.values()):
            raise InvalidValue("a function that patches gives each partition as an object", path="")
    after = {part: {**copied.get(part, {}), **(returned or {}).get(part, {})} for part in PARTITIONS}
    return {part: _operations(before[part], after[part]) for part in PARTITIONS}


def _operations(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations that make the one partition of the other."""
    gone = [{"op": "remove", "path": f"/{_pointed(name)}"} for name in before if name not in after]
    known = {name: canonical.dumps(value) for name, value in before.items()}
    set_ = [name for name, value in after.items() if known.get(name) != canonical.dumps(value)]
    return [*gone, *({"op": "add", "path": f"/{_pointed(name)}", "value": after[name]} for name in set_)]


def _pointed(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _differs(before: State, after: State, part: str, name: str) -> bool:
    return canonical.encode(before[part].get(name)) != canonical.encode(after[part][name])


def _held(after: State, gate: str, names: Sequence[str], task: Task, reason: str) -> HeldTask:
    values = {**after["scratch"], **after["artifacts"]}
    writes = [HeldWrite(task, n, name, values[name], f"Patch: {name}") for n, name in enumerate(names)]
    why = f"{reason}, so it needs the signatures that the gate of {gate} asks for"
    return HeldTask(task, tuple(writes), gate, why)


def first_checkpoint(point: Departure, overlay: Overlay, source: str, *, seq: int | None = None) -> NewCheckpoint:
    """The checkpoint with which the new line begins: the overlay's state, the point's tokens and open superstep. `seq`
    is its number where it is in the point's own run, whose channels keep what set them last.
    """
    frontier = _frontier(point, overlay)
    open_ = replace(point.open, tries={}, due={}).to_json() if point.open.superstep else {}
    document = point.document
    versions = dict.fromkeys([*overlay.state["scratch"], *overlay.state["artifacts"]], 0)
    if seq is not None:
        set_now = dict.fromkeys((name for name in overlay.change.patched if name not in overlay.change.guarded), seq)
        versions |= {**document["versions"], **set_now}
    payload = Payload(overlay.state, document["diagnostics"], frontier.to_json(), versions, open_)
    at, committed = point.checkpoint.superstep, point.checkpoint.committed
    return NewCheckpoint(source, payload, at, committed=committed, snapshot=point.graph.snapshot)


def _frontier(point: Departure, overlay: Overlay) -> Frontier:
    frontier = renumbered_patches(point.frontier)
    written, fitted, after = {*frontier.written}, point.going_on, overlay.state
    if point.retyped:
        old = versions.structure_of(point.checkpoint.fingerprint)
        written = {*written_firsts(point.graph, old, written, point.state, after)}
    set_now = {n for part in PARTITIONS for n in after[part] if _differs(fitted, after, part, n)}
    set_now = {n for n in set_now if n in overlay.change.patched and n not in overlay.change.guarded}
    written |= {name for name in set_now if point.graph.channels[name].reducer == First}
    frontier = replace(frontier, written=tuple(sorted(written)))
    if overlay.held:
        frontier = hold_patch(frontier, overlay.held[0].task.visit, len(overlay.held))
    return frontier


def stage_requests(point: Departure, overlay: Overlay, asked: Sequence[HeldTask], asker: Asker) -> NewRequests:
    """The requests of the line that begins: those of the point anew, and one a gate for what of the patch is held.

    Raises `InvalidValue` where a function for reviewers fails.
    """
    every = [*overlay.held, *asked]
    held = [write for one in every for write in one.writes]
    channels = execution_memory.held_channels([], held)
    state = execution_memory.memory_values(asker.protection, overlay.state, channels)
    # Whom a gate asks is not the patch's to say.
    moment = Moment(
        state,
        point.checkpoint.superstep,
        point.input,
        timezone.now(),
        asked_on=point.state,
        unsigned=partial(_who_chose, point),
    )
    reached = {one.task: _reached(point, one) for one in every}
    return prepare_requests(asker, point.graph, reached, held, moment)


def _who_chose(point: Departure, reads: Collection[str]) -> str:
    """Who changed what of these channels without a signature, which decided whom a gate asks."""
    return sentence_of(point.unsigned_changes, reads, decides="whom it asks") if reads else ""


def _reached(point: Departure, one: HeldTask) -> ReachedGate:
    gate: Gate = point.graph.nodes[one.guard].gate or Gate()
    if one.task.node == PATCH:
        reached = patch_gate(gate, [write.channel for write in one.writes], one.why, guard=one.guard)
        # Whom a function named when it was first held stays: what changed since is not to name others.
        named = one.reviewers if callable(named_reviewers(point.graph, gate)) else None
        return replace(reached, reviewers=named, reads=one.reads if named is not None else ())
    whole = one.guard != one.task.node
    channels = [write.channel for write in one.writes]
    whole = whole or is_applied_as_one(point.graph, one.task.node, channels)
    return ReachedGate(gate, one.why, whole, one.input_hash, one.prepared_from, guard=one.guard, reads=one.reads)
