"""The state of a run that continues with another version of its graph: migrated, with
new channels, and with guarded values held for signatures.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from approvals.gates.guarded_channels import guard_of_each, signed_channels
from checkpoints import lines, versions
from checkpoints.conf import conf
from checkpoints.ledger.commit import Head
from checkpoints.lines import Stretch
from checkpoints.models.run_line import Travel
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.held_patch import PATCH, next_patch
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.engine.values import canonical
from orchestrator.engine.versions.differences import Structure
from orchestrator.engine.versions.gate_differences import asks_as_much
from orchestrator.engine.versions.judgement import Judgement
from orchestrator.engine.versions.migration import migrated_state, written_firsts


@frozen
class StateChange:
    """The state with which a run is adopted.

    `state` is where it continues, `unheld` what the state would be if nothing were
    held; `changed` are the channels that are set now. `held` are the writes that wait
    for signatures, `gates` the node whose gate decides each of their tasks. `written`
    are the First channels that hold a value.
    """

    state: State
    unheld: State
    changed: tuple[str, ...]
    held: tuple[HeldWrite, ...] = ()
    gates: Mapping[Task, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()


def change_of(
    lease: Lease, head: Head, target: Compiled, judgement: Judgement
) -> StateChange:
    """Return the state change that `judgement` prescribes at this head. A replay asks
    nobody, so nothing of it is held there. Raises `InvalidValue`, `PayloadTooLarge` if
    a migration fails.
    """
    before = head.payload.state
    limit = conf().max_value_bytes
    migrated = migrated_state(target, judgement.steps, before, limit=limit)
    old = versions.structure_of(lease.fingerprint)

    guarded: dict[str, str] = {}
    # Without a migration every value keeps its meaning, and its signatures.
    if judgement.steps and _changed(before, migrated) and not _is_replay(lease):
        way = lines.past(lease.id, lease.line)
        guarded = guards_of_migration(way, old, target, before, migrated)

    frontier = Frontier.from_json(head.payload.frontier)
    gates_by_channel = {channel: (gate,) for channel, gate in guarded.items()}
    writes_by_gate = held_writes_by_gate(
        migrated, gates_by_channel, visit=next_patch(frontier), label="Migration"
    )
    held: list[HeldWrite] = []
    gates: dict[Task, str] = {}
    for gate, writes in writes_by_gate.items():
        held += writes
        gates[writes[0].task] = gate

    state = without_guarded(target, before, migrated, guarded)
    return StateChange(
        state,
        unheld=migrated,
        changed=tuple(sorted(_changed(before, state))),
        held=tuple(held),
        gates=gates,
        written=written_firsts(target, old, frontier.written, before, state),
    )


def held_writes_by_gate(
    state: State,
    gates_by_channel: Mapping[str, Sequence[str]],
    *,
    visit: int,
    label: str,
) -> dict[str, tuple[HeldWrite, ...]]:
    """Return the values of guarded channels as writes that wait for signatures, by the
    node of their gate. All writes at one gate belong to one task of the patch.
    """
    channels_by_gate: dict[str, list[str]] = {}
    for channel, gates in gates_by_channel.items():
        for gate in dict.fromkeys(gates):
            channels_by_gate.setdefault(gate, []).append(channel)

    values = {**state["scratch"], **state["artifacts"]}
    writes_by_gate: dict[str, tuple[HeldWrite, ...]] = {}
    for index, (gate, channels) in enumerate(channels_by_gate.items()):
        task = Task(PATCH, visit, index)
        writes_by_gate[gate] = tuple(
            HeldWrite(task, position, channel, values[channel], f"{label}: {channel}")
            for position, channel in enumerate(channels)
        )
    return writes_by_gate


def _is_replay(lease: Lease) -> bool:
    if not lease.departed:
        return False
    row = lines.line_row(lease, lease.line)
    return row is not None and row.travel == Travel.REPLAY


def without_guarded(
    target: Compiled, before: State, after: State, guarded: Collection[str]
) -> State:
    """Return the state `after` with each guarded channel as it was before, in whichever
    partition; a new one is at its default.
    """
    fresh = target.fresh_state()
    state: State = {}
    for part, values in after.items():
        # A migration may have moved a channel to the other partition.
        earlier = {
            **fresh[part],
            **before["scratch"],
            **before["artifacts"],
            **before[part],
        }
        state[part] = dict(values)
        for name in values:
            if name in guarded:
                state[part][name] = earlier[name]
    return state


def guards_of_migration(
    way: Sequence[Stretch],
    old: Structure | None,
    target: Compiled,
    before: State,
    migrated: State,
) -> dict[str, str]:
    """Return for each channel that a migration changes the node whose gate its value
    must pass, if there is one. A channel that replaces a removed one passes the gate of
    the removed one. `old` is the structure of the version before.

    Raises `InvalidValue` if the target has no gate that asks as much.
    """
    changed = _changed(before, migrated)
    signed = signed_channels(way, old or {"nodes": ()})
    unsigned = [name for name in changed if name not in signed]
    replacing = _possible_replacements(target, before, migrated, unsigned)
    removed = sorted(_gates_of(_channels(before) - _channels(migrated), signed))

    # The target must ask as strictly for whatever was signed before.
    touched = {*changed, *removed} if replacing else {*changed}
    touched_gates = _gates_of(sorted(touched), signed)
    require_gates(old, target, touched_gates, what="the migration changes")
    guards = guard_of_each(way, target, changed) | _gates_of(changed, signed)

    # Which of the removed channels a new one replaces is unknown, so all of them must
    # have the same gate.
    removed_gates = {signed[name] for name in removed}
    if replacing and len(removed_gates) > 1:
        raise InvalidValue(
            f"the migration takes out {', '.join(removed)}, which different gates guard",
            channels=removed,
        )
    for gate in removed_gates:
        guards |= dict.fromkeys(replacing, gate)
    return guards


def _gates_of(channels: Iterable[str], signed: Mapping[str, str]) -> dict[str, str]:
    return {name: signed[name] for name in channels if name in signed}


def _possible_replacements(
    target: Compiled, before: State, migrated: State, changed: Collection[str]
) -> list[str]:
    """Return those of these changed channels that may hold what another one held: those
    that were there before, and new ones that are not at their default.
    """
    fresh = target.fresh_state()
    earlier = _channels(before)
    replacements: list[str] = []
    for part in PARTITIONS:
        for name in migrated[part]:
            if name not in changed:
                continue
            if name in earlier or _differs(fresh, migrated, part, name):
                replacements.append(name)
    return replacements


def require_gates(
    old: Structure | None, target: Compiled, touched: Mapping[str, str], *, what: str
) -> None:
    """Raise `InvalidValue` if the target has no gate that asks as much as one of these:
    channel -> its node.
    """
    before = _nodes_by_name(old)
    after = _nodes_by_name(target.structure)
    for channel, node in touched.items():
        if not asks_as_much(before.get(node), after.get(node)):
            raise InvalidValue(
                f"{what} `{channel}`, which the gate of node `{node}` guards, and "
                f"version {target.version} has no gate there that asks as much",
                channel=channel,
            )


def _nodes_by_name(structure: Structure | None) -> dict[str, Any]:
    if not structure:
        return {}
    return {node["name"]: node for node in structure["nodes"]}


def _channels(state: State) -> set[str]:
    return {name for part in PARTITIONS for name in state[part]}


def _changed(before: State, after: State) -> list[str]:
    """Return the channels of `after` that are new or have another value."""
    changed: list[str] = []
    for part in PARTITIONS:
        for name in after[part]:
            if _differs(before, after, part, name):
                changed.append(name)
    return changed


def _differs(before: State, after: State, part: str, name: str) -> bool:
    if name not in before[part]:
        return True
    # In canonical form, in which 1 and true differ.
    encoded_before = canonical.encode(before[part][name])
    return encoded_before != canonical.encode(after[part][name])
