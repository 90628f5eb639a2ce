"""What going on with another version makes of a run's state: migrated, with new channels, guarded values held."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from approvals.gates.guarded_channels import guard_of_each, signed_channels
from checkpoints import lines, versions
from checkpoints.conf import conf
from checkpoints.ledger.commit import Head
from checkpoints.lines import Stretch
from checkpoints.models.run_line import Travel
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task, canonical
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.differences import Structure
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate_differences import asks_as_much
from orchestrator.engine.held_patch import PATCH, next_patch
from orchestrator.engine.judgement import Judgement
from orchestrator.engine.migration import migrated_state, written_firsts
from orchestrator.engine.patch import PARTITIONS
from orchestrator.engine.reduce import HeldWrite


@frozen
class StateChange:
    """What adopting makes of the state: `state` goes on, `wanted` is what it would be if nothing were held; `changed`
    are the channels that are set now. `held`: what waits for whom, with the gate of each. `written`: the First channels
    that hold a value.
    """

    state: State
    wanted: State
    changed: tuple[str, ...]
    held: tuple[HeldWrite, ...] = ()
    gates: Mapping[Task, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()


def change_of(lease: Lease, head: Head, target: Compiled, found: Judgement) -> StateChange:
    """What `found` makes of the state at this head. A replay asks nobody, so nothing of it is held there. Raises
    `InvalidValue`, `PayloadTooLarge`: a migration failed.
    """
    before = head.payload.state
    wanted = migrated_state(target, found.steps, before, limit=conf().max_value_bytes)
    changed = [name for part in PARTITIONS for name in wanted[part] if _differs(before, wanted, part, name)]
    old, guarded = versions.structure_of(lease.fingerprint), {}
    if found.steps and changed and not _is_replay(lease):
        guarded = guards_of_migration(lines.past(lease.id, lease.line), old, target, before, wanted)
    state = without_guarded(target, before, wanted, guarded)
    frontier = Frontier.from_json(head.payload.frontier)
    number, gates = next_patch(frontier), list(dict.fromkeys(guarded.values()))
    values = {**wanted["scratch"], **wanted["artifacts"]}
    tasks = {Task(PATCH, number, n): gate for n, gate in enumerate(gates)}
    held = [
        HeldWrite(task, n, name, values[name], f"Migration: {name}")
        for task, gate in tasks.items()
        for n, name in enumerate(name for name, node in guarded.items() if node == gate)
    ]
    set_now = [name for part in PARTITIONS for name in state[part] if _differs(before, state, part, name)]
    written = written_firsts(target, old, frontier.written, before, state)
    return StateChange(state, wanted, tuple(sorted(set_now)), tuple(held), tasks, written)


def _is_replay(lease: Lease) -> bool:
    row = lines.line_row(lease, lease.line) if lease.departed else None
    return row is not None and row.travel == Travel.REPLAY


def without_guarded(target: Compiled, before: State, wanted: State, guarded: Collection[str]) -> State:
    """The state that is wanted with each guarded channel as it was before, in whichever partition; one that is new is
    at its default.
    """
    fresh = target.fresh_state()
    found = {}
    for part, values in wanted.items():
        earlier = {**fresh[part], **before["scratch"], **before["artifacts"], **before[part]}
        found[part] = {name: earlier[name] if name in guarded else value for name, value in values.items()}
    return found


def guards_of_migration(
    way: Sequence[Stretch], old: Structure | None, target: Compiled, before: State, wanted: State
) -> dict[str, str]:
    """Of what a migration changes, the node whose gate each value must pass. What takes the place of a channel that it
    takes out passes that one's gate. `old` is the structure of the version before it. Raises `InvalidValue` where the
    target has no gate that asks as much.
    """
    changed = [name for part in PARTITIONS for name in wanted[part] if _differs(before, wanted, part, name)]
    signed = signed_channels(way, old or {"nodes": ()})
    there = {name for part in PARTITIONS for name in wanted[part]}
    gone = {name for part in PARTITIONS for name in before[part] if name in signed and name not in there}
    fresh, gates = target.fresh_state(), {signed[name] for name in gone}
    known = {name for part in PARTITIONS for name in before[part]}
    moved = [
        name
        for part in PARTITIONS
        for name in wanted[part]
        if name in changed and name not in signed and (name in known or _differs(fresh, wanted, part, name))
    ]
    touched = {*changed, *(gone if moved else ())} & {*signed}
    require_gates(old, target, {name: signed[name] for name in sorted(touched)}, what="the migration changes")
    found = guard_of_each(way, target, changed) | {name: signed[name] for name in changed if name in signed}
    if moved and len(gates) > 1:
        named = ", ".join(sorted(gone))
        raise InvalidValue(f"the migration takes out {named}, which different gates guard", channels=sorted(gone))
    return found | {name: gate for name in moved for gate in gates}


def require_gates(old: Structure | None, target: Compiled, touched: Mapping[str, str], *, what: str) -> None:
    """Raise `InvalidValue` where the target has no gate that asks as much as one of these: channel -> its node."""
    before, after = (
        {node["name"]: node for node in (one or {"nodes": ()})["nodes"]} for one in (old, target.structure)
    )
    for channel, node in touched.items():
        if not asks_as_much(before.get(node), after.get(node)):
            said = f"{what} `{channel}`, which the gate of node `{node}` guards"
            raise InvalidValue(
                f"{said}, and version {target.version} has no gate there that asks as much", channel=channel
            )


def _differs(before: State, after: State, part: str, name: str) -> bool:
    return name not in before[part] or canonical.encode(before[part][name]) != canonical.encode(after[part][name])
