"""The overlay of a checkpoint from which a run continues: a patch, and the requests
that were open there, asked again.

It is validated as a whole before anything is written. A value in a guarded channel is
held until the people of its gate have signed it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.utils import timezone

from approvals.gates.deadline_jobs import AskingPlace
from approvals.gates.new_requests import (
    Asker,
    Moment,
    NewRequests,
    ReachedGate,
    patch_gate,
    prepare_requests,
)
from approvals.gates.unsigned_changes import sentence_of
from checkpoints import versions
from checkpoints.conf import conf
from checkpoints.db.clock import read_now
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, Payload
from orchestrator.engine import Gate, Task
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import is_applied_as_one, named_reviewers
from orchestrator.engine.graphs.reducer import First
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.held_patch import (
    PATCH,
    hold_patch,
    next_patch,
    renumbered_patches,
)
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.engine.travel.patch import PARTITIONS, json_of, patched
from orchestrator.engine.values import canonical
from orchestrator.engine.versions.migration import written_firsts
from orchestrator.execution import memory as execution_memory
from orchestrator.execution.adoption.state_change import (
    guards_of_migration,
    held_writes_by_gate,
    without_guarded,
)
from orchestrator.travel.departure import Departure, HeldTask, State, guards_at
from orchestrator.travel.plan import PatchEffect

Patch = Mapping[str, Any] | Callable[[State], Any] | None
"""{partition: merge patch or list of operations}; or a function that changes a copy of
the state, or returns the changed parts.
"""


@dataclass(frozen=True)
class Overlay:
    """The state with which a run continues. `patch` is the patch as it is kept,
    `change` what it changes; `held` are its parts that wait for signatures, by gate.
    """

    state: State
    change: PatchEffect
    held: tuple[HeldTask, ...] = ()
    patch: Any = None


def lay_over(
    point: Departure, patch: Patch, *, by: str = "", asks: bool = True
) -> Overlay:
    """Return the state of the point with a patch over it, made by the person of that
    name. What another version of the graph makes of a value counts as a patch too.
    Without `asks` nothing waits for signatures: a replay has nobody to ask.

    Raises `InvalidValue` naming path, rule and value, and `PayloadTooLarge`.
    """
    kept_state = point.state

    # The state before and after. A channel that is new in the version counts as changed
    # if a migration set it to something else than its default.
    fitted = point.going_on
    defaults = point.graph.fresh_state() if point.steps else fitted
    before = {part: {**defaults[part], **kept_state[part]} for part in PARTITIONS}
    after = _checked(point, fitted, patch) if patch else fitted

    # For an imported run it also counts if a patch sets the value with which a run
    # begins: what its guarded channels held was not signed here.
    baselines = [before]
    if point.run.imported:
        before = _with_guarded_at_defaults(point, before)
        baselines = [before, fitted]
        kept_state = before
    changed = _changed(after, compared_with=baselines)

    gates_by_channel = _gates_by_channel(point, changed) if asks else {}
    state = without_guarded(point.graph, kept_state, after, gates_by_channel)
    held: tuple[HeldTask, ...] = ()
    if gates_by_channel:
        # Reviewers are shown who patched a value; what a version makes of it has no
        # author.
        patched_by_person = {*_changed(after, compared_with=[fitted])} & {*changed}
        held = _held_tasks(
            point, after, gates_by_channel, patched_by_person=patched_by_person, by=by
        )
    change = PatchEffect(
        tuple(sorted(changed)),
        {channel: gates[0] for channel, gates in gates_by_channel.items()},
        tuple(held_task.task for held_task in held),
        tuple(held_task.guard for held_task in held),
    )
    return Overlay(state, change, held, _patch_to_keep(after, changed))


def _patch_to_keep(after: State, changed: Sequence[str]) -> State | None:
    if not changed:
        return None
    patch: State = {}
    for part in PARTITIONS:
        patch[part] = {
            name: after[part][name] for name in changed if name in after[part]
        }
    return patch


def _changed(after: State, *, compared_with: Sequence[State]) -> list[str]:
    """Return the channels that have another value in one of these states."""
    changed: list[str] = []
    for part in PARTITIONS:
        for name, value in after[part].items():
            # Compared in canonical form, in which 1 and true differ.
            encoded = canonical.encode(value)
            for before in compared_with:
                if canonical.encode(before[part].get(name)) != encoded:
                    changed.append(name)
                    break
    return changed


def _gates_by_channel(
    point: Departure, channels: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return for each of these channels that is guarded the nodes at whose gates people
    must sign.
    """
    gates_by_channel = guards_at(point, channels)
    # The gate that a migration has to pass comes first.
    for channel, node in _guards_of_steps(point).items():
        others = [gate for gate in gates_by_channel.get(channel, ()) if gate != node]
        gates_by_channel[channel] = (node, *others)
    return gates_by_channel


def _held_tasks(
    point: Departure,
    after: State,
    gates_by_channel: Mapping[str, Sequence[str]],
    *,
    patched_by_person: set[str],
    by: str,
) -> tuple[HeldTask, ...]:
    """Return what waits for signatures, one task a gate. The person who patches is
    named; what else changes has no author.
    """
    visit = next_patch(renumbered_patches(point.frontier))
    writes_by_gate = held_writes_by_gate(
        after, gates_by_channel, visit=visit, label="Patch"
    )
    held: list[HeldTask] = []
    for gate, writes in writes_by_gate.items():
        if patched_by_person.isdisjoint(write.channel for write in writes):
            reason = _reason_without_author(point)
        else:
            reason = f"{by or 'The system'} set this by a patch"
        why = f"{reason}, so it needs the signatures that the gate of {gate} asks for"
        held.append(HeldTask(writes[0].task, writes, gate, why))
    return tuple(held)


def _with_guarded_at_defaults(point: Departure, state: State) -> State:
    """Return the state of an imported run without what people must sign: its guarded
    channels hold what a fresh run has there, so that their values count as a patch.
    """
    fresh = point.graph.fresh_state()
    channels = [name for part in PARTITIONS for name in state[part]]
    guarded = guards_at(point, channels)
    unsigned: State = {}
    for part in PARTITIONS:
        unsigned[part] = dict(state[part])
        for name in state[part]:
            if name in guarded:
                unsigned[part][name] = fresh[part].get(name)
    return unsigned


def _guards_of_steps(point: Departure) -> dict[str, str]:
    """Return the gates that migrated values of the point's state must pass, as if the
    run itself were adopted.
    """
    if not point.steps:
        return {}
    old = versions.structure_of(point.checkpoint.fingerprint)
    return guards_of_migration(
        point.stretches, old, point.graph, point.state, point.going_on
    )


def _reason_without_author(point: Departure) -> str:
    if point.run.imported:
        return "This value came in with an imported run"
    if point.steps:
        way = ", ".join(step.name for step in point.steps)
        return f"The migration from {way} set this"
    return (
        f"Version {point.graph.version} of {point.graph.name} "
        "reads this value otherwise than it was written"
    )


def _checked(point: Departure, before: State, patch: Patch) -> State:
    """Return the patched state, with each changed channel validated against its type."""
    limit = conf().max_value_bytes
    content: Any = patch
    if callable(patch):
        content = _operations_of_function(patch, before)
    if content:
        content = json_of(content)
    if content and len(canonical.encode(content)) > limit:
        raise PayloadTooLarge(
            f"a patch has at most {limit:,} bytes", path="", limit=limit
        )
    return patched(before, content or {}, graph=point.graph, limit=limit)


def _operations_of_function(
    patch: Callable[[State], Any], before: State
) -> dict[str, list[dict[str, Any]]]:
    """Return the operations for what a function changed in its copy of the state, and
    for what it returned. What it does not mention stays.
    """
    copied = {part: canonical.normalised(before[part]) for part in PARTITIONS}
    returned = patch(copied)
    if returned is None:
        returned = {}
    # The function may have broken the copy that it was given too.
    _require_partitions(copied)
    _require_partitions(returned)
    operations: dict[str, list[dict[str, Any]]] = {}
    for part in PARTITIONS:
        after = {**copied.get(part, {}), **returned.get(part, {})}
        operations[part] = _operations(before[part], after)
    return operations


def _require_partitions(state: Any) -> None:
    if not isinstance(state, dict) or set(state) - {*PARTITIONS}:
        raise InvalidValue(
            f"a function may patch {' and '.join(PARTITIONS)}, nothing else", path=""
        )
    if not all(isinstance(values, dict) for values in state.values()):
        raise InvalidValue(
            "a function that patches gives each partition as an object", path=""
        )


def _operations(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the operations that turn one form of a partition into the other."""
    operations: list[dict[str, Any]] = []
    for name in before:
        if name not in after:
            operations.append({"op": "remove", "path": f"/{_pointer_part(name)}"})
    # Compared as JSON, in which 1 and true differ.
    encoded = {name: canonical.dumps(value) for name, value in before.items()}
    for name, value in after.items():
        if encoded.get(name) != canonical.dumps(value):
            path = f"/{_pointer_part(name)}"
            operations.append({"op": "add", "path": path, "value": value})
    return operations


def _pointer_part(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def first_checkpoint(
    point: Departure, overlay: Overlay, source: str, *, seq: int | None = None
) -> NewCheckpoint:
    """Return the checkpoint with which the new line begins: the overlay's state, the
    point's tokens and open superstep. `seq` is its number if it is in the point's own
    run, whose channels keep the numbers at which they were last set.
    """
    document = point.document
    open_: dict[str, Any] = {}
    if point.open.superstep:
        # The attempts start over: a person has just acted. A call that needed nobody is
        # prepared again, on the state as it is now.
        begun = point.open.without_renewals()
        open_ = replace(begun, tries={}, due={}, passed={}).to_json()
    set_at = dict.fromkeys([*overlay.state["scratch"], *overlay.state["artifacts"]], 0)
    if seq is not None:
        set_at |= document["versions"]
        set_at |= dict.fromkeys(_set_now(overlay.change), seq)
    payload = Payload(
        overlay.state,
        document["diagnostics"],
        _frontier(point, overlay).to_json(),
        set_at,
        open_,
    )
    return NewCheckpoint(
        source,
        payload,
        point.checkpoint.superstep,
        committed=point.checkpoint.committed,
        snapshot=point.graph.snapshot,
    )


def _set_now(change: PatchEffect) -> list[str]:
    """Return the patched channels that are set at once, because no gate guards them."""
    return [name for name in change.patched if name not in change.guarded]


def _frontier(point: Departure, overlay: Overlay) -> Frontier:
    """Return the point's frontier with its First channels that hold a value now, and
    with the held patch.
    """
    frontier = renumbered_patches(point.frontier)
    if frontier.waiting:
        frontier = frontier.with_renewed_ready()
    after = overlay.state
    written = {*frontier.written}
    if point.retyped:
        old = versions.structure_of(point.checkpoint.fingerprint)
        written = {*written_firsts(point.graph, old, written, point.state, after)}
    set_now = _set_now(overlay.change)
    if set_now:
        set_by_patch = {*_changed(after, compared_with=[point.going_on])}
        for name in set_by_patch.intersection(set_now):
            if point.graph.channels[name].reducer == First:
                written.add(name)
    frontier = replace(frontier, written=tuple(sorted(written)))
    if overlay.held:
        frontier = hold_patch(frontier, overlay.held[0].task.visit, len(overlay.held))
    return frontier


def stage_requests(
    point: Departure, overlay: Overlay, waiting: Sequence[HeldTask], asker: Asker
) -> NewRequests:
    """Return the requests of the line that begins: those that wait at the point,
    rebuilt, and one for each gate that holds a part of the patch.

    Raises `InvalidValue` if a function for reviewers, or the terms of a gate, fail.
    """
    writes: list[HeldWrite] = []
    reached: dict[Task, ReachedGate] = {}
    for held_task in (*overlay.held, *waiting):
        writes += held_task.writes
        reached[held_task.task] = _reached_gate(point, held_task)
    channels = execution_memory.held_channels([], writes)
    state = execution_memory.memory_values(asker.protection, overlay.state, channels)
    moment = Moment(
        state,
        point.checkpoint.superstep,
        point.input,
        # The database's clock decides when windows end.
        read_now() if point.graph.has_policies else timezone.now(),
        # A patch must not decide whom a gate asks.
        asked_on=point.state,
        unsigned=partial(_unsigned_change, point),
        behind=AskingPlace(point.run.id, point.checkpoint.line),
    )
    return prepare_requests(asker, point.graph, reached, writes, moment)


def _unsigned_change(point: Departure, reads: Collection[str], decides: str) -> str:
    """Return the sentence on who changed one of these channels without a signature, and
    so decided whom a gate asks, or until when.
    """
    if not reads:
        return ""
    return sentence_of(point.unsigned_changes, reads, decides=decides)


def _reached_gate(point: Departure, held_task: HeldTask) -> ReachedGate:
    declared: Gate = point.graph.nodes[held_task.guard].gate or Gate()
    gate = gate_on_run(point.graph, declared, point.input)
    channels = [write.channel for write in held_task.writes]
    node = held_task.task.node
    if node == PATCH:
        reached = patch_gate(gate, channels, held_task.why, guard=held_task.guard)
        if not callable(named_reviewers(point.graph, gate)):
            return replace(reached, reviewers=None, reads=())
        # The reviewers that a function named when the patch was first held stay: later
        # changes must not name others.
        reviewers = held_task.reviewers
        reads = held_task.reads if reviewers is not None else ()
        return replace(reached, reviewers=reviewers, reads=reads)
    is_foreign_gate = held_task.guard != node
    return ReachedGate(
        gate,
        held_task.why,
        is_foreign_gate or is_applied_as_one(point.graph, node, channels),
        held_task.input_hash,
        held_task.prepared_from,
        guard=held_task.guard,
        reads=held_task.reads,
    )
