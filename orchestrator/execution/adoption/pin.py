"""A run goes on with another version of its graph: judged, migrated and pinned anew in one fenced commit.

Only whoever may judge calls this, with the run's lease. What guarded channels would become is held for signatures.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db.models import Q

from approvals.gates import settlement
from approvals.gates.guarded_channels import signed_channels
from approvals.gates.new_requests import Moment, ReachedGate, patch_gate, prepare_requests
from approvals.gates.request_state import RequestState
from approvals.gates.reviewed_channels import channels_under_review
from approvals.gates.settlement import rebase_writes
from approvals.gates.unsigned_changes import sentence_of, unsigned_changes
from checkpoints import lines, versions
from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.results import Entry
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import Head, NewCheckpoint, RunUpdate
from checkpoints.models.checkpoint import Source
from checkpoints.queue.leases import Lease
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Gate, Task, ops
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING, WARNING
from orchestrator.engine.errors import IncompatibleGraph, InvalidValue, PayloadTooLarge
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.held_patch import hold_patch
from orchestrator.engine.judgement import Judgement
from orchestrator.engine.migration import misread_channels
from orchestrator.engine.pending_parts import kept_ways, lost_ways, pending_parts
from orchestrator.engine.plan import unplanned
from orchestrator.execution import memory as execution_memory
from orchestrator.execution import summary
from orchestrator.execution.adoption.state_change import StateChange, change_of, require_gates
from orchestrator.execution.open_superstep import OpenSuperstep
from orchestrator.execution.session import retry_when_log_moved


def adopt_version(lease: Lease, head: Head, given: Any, target: Compiled) -> Head:
    """Let a run in hand go on with `target`. Gives its new head; the lease names the version from then on.

    Raises `IncompatibleGraph` with every difference where it cannot, or where a migration fails; then nothing was
    written. `StaleLease` where the lease is lost.
    """
    at = pending_parts(head.payload.frontier, head.payload.open)
    found = versions.judgement_of(lease, target, at, held=lambda: _under_way(lease))
    if not found.adopted:
        raise _refusal(lease, target, found)
    try:
        entries = journal.entries(lease)
        _require_same_superstep(head, target, entries)
        _require_gates_of_settled(lease, target, entries)
        change = change_of(lease, head, target, found)
        _require_same_meaning(lease, head, target, found, entries)
        return retry_when_log_moved(lease, lambda: _commit(lease, head, given, target, found, change))
    except (InvalidValue, PayloadTooLarge) as error:
        raise _refusal(lease, target, found, because=error.message) from error


def _require_same_superstep(head: Head, target: Compiled, entries: Mapping[Task, Entry]) -> None:
    """Raise `InvalidValue` where the target would not begin each task of the superstep in hand, or lacks a way that one
    of them said it goes on by.
    """
    open_ = OpenSuperstep.from_json(head.payload.open)
    begun = {*open_.results, *open_.tries, *entries}
    frontier = Frontier.from_json(head.payload.frontier)
    if begun and (left := unplanned(target, frontier, begun, stops=open_.without)):
        said = f"{', '.join(left)} began in the superstep in hand, and would not begin in it"
        raise InvalidValue(f"{said} in version {target.version}", tasks=left)
    ways = [way for task, one in entries.items() if one.output for way in kept_ways(task.node, one.output)]
    if lost := lost_ways(ways, target.edge):
        said = f"a result that is kept leads along {', '.join(lost)}"
        raise InvalidValue(f"{said}, which version {target.version} lacks", edges=lost)


def _require_gates_of_settled(lease: Lease, target: Compiled, entries: Mapping[Task, Entry]) -> None:
    """Raise `InvalidValue` where a person said what an effect returned, that must be signed, and the target has no gate
    for it that asks as much.
    """
    settled = {task: one.output for task, one in entries.items() if one.settled and one.output}
    if not settled:
        return
    old = versions.structure_of(lease.fingerprint)
    signed = signed_channels(lines.past(lease.id, lease.line), old or {"nodes": ()})
    for task, output in settled.items():
        named = {write["channel"] for write in output["writes"]} & {*signed}
        touched = {channel: signed[channel] for channel in sorted(named)}
        require_gates(old, target, touched, what=f"the output of {task} that was settled sets")


def _require_same_meaning(
    lease: Lease, head: Head, target: Compiled, found: Judgement, entries: Mapping[Task, Entry]
) -> None:
    """Raise `InvalidValue` where a migration changes what a value means that waits to be written: what somebody
    proposed or signed for euros must not be set as cents.
    """
    if not found.steps:
        return
    kept = OpenSuperstep.from_json(head.payload.open).results.values()
    recorded = [
        (write["channel"], write["value"]) for one in entries.values() if one.output for write in one.output["writes"]
    ]
    recorded += [(write.channel, write.value) for one in kept if one.output for write in one.output.writes]
    asked = [(row.channel, read_value(row, "value")) for one in _asked(lease, head) for row in one.writes]
    limit = conf().max_value_bytes
    if lost := misread_channels(target, found.steps, head.payload.state, [*recorded, *asked], limit=limit):
        named, way = ", ".join(f"`{name}`" for name in lost), ", ".join(step.name for step in found.steps)
        raise InvalidValue(
            f"the migration from {way} changes what {named} means, and a value of version {lease.version} waits to be"
            f" written there, which no migration sees; let the run end on version {lease.version}, registered beside"
            " the new one, or fork it from a checkpoint before that value",
            channels=lost,
        )


def _under_way(lease: Lease) -> set[str]:
    """Channels of values that wait to be written: people are asked about them, or a task that is cut off gave them."""
    outputs = [entry.output for entry in journal.entries(lease).values() if entry.output]
    recorded = {write["channel"] for output in outputs for write in output["writes"]}
    return recorded | channels_under_review(Q(run=lease.id)).get(lease.id, set())


def _commit(lease: Lease, head: Head, given: Any, target: Compiled, found: Judgement, change: StateChange) -> Head:
    """Pin the run to its new version, with a checkpoint that has the state to go on with."""
    at, asked = datetime.now(UTC), _asked(lease, head)
    opening = prepare_requests(
        lease, target, _reached(target, found, change), change.held, _moment(lease, given, change)
    )
    channels = execution_memory.held_channels(asked, change.held)
    seen = execution_memory.memory_values(lease.protection, change.state, channels)
    rebased = rebase_writes(asked, target, seen, at=at, protection=lease.protection)
    facts = _facts(lease, target, found, change)
    lease.version, lease.fingerprint = target.version, target.fingerprint
    checkpoint = _checkpoint(lease, head, target, change)
    place = summary.place_of(Frontier.from_json(checkpoint.payload.frontier), None)
    run_update = RunUpdate(Status.RUNNING, place, lease.tape, pins=True)
    events = [NewEvent("version_changed", facts), *opening.events, *rebased.events]

    def inside() -> None:
        opening.insert()
        rebased.insert()

    try:
        return ledger.commit_superstep(lease, head, checkpoint, run_update, events=events, inside=inside)
    except BaseException:
        lease.version, lease.fingerprint = facts["before"]["version"], facts["before"]["fingerprint"]
        raise


def _asked(lease: Lease, head: Head) -> Sequence[RequestState]:
    tasks = Frontier.from_json(head.payload.frontier).gated() | OpenSuperstep.from_json(head.payload.open).asked
    return settlement.waiting_requests(lease, tasks) if tasks else []


def _reached(target: Compiled, found: Judgement, change: StateChange) -> dict[Task, ReachedGate]:
    way = ", ".join(step.name for step in found.steps)
    why = f"The migration from {way} set this, so it needs the signatures that the gate of {{}} asks for"
    return {
        task: patch_gate(
            target.nodes[node].gate or Gate(),
            [one.channel for one in change.held if one.task == task],
            why.format(node),
            guard=node,
        )
        for task, node in change.gates.items()
    }


def _moment(lease: Lease, given: Any, change: StateChange) -> Moment:
    # A function that says whom to ask is given values of the types that it knows.
    return Moment(
        change.state,
        lease.superstep,
        given,
        datetime.now(UTC),
        asked_on=change.wanted,
        unsigned=partial(_who_chose, lease),
    )


def _who_chose(lease: Lease, reads: Collection[str]) -> str:
    """Who changed what of these channels without a signature, which decided whom a gate asks."""
    if not reads:
        return ""
    return sentence_of(unsigned_changes(lines.past(lease.id, lease.line)), reads, decides="whom it asks")


def _facts(lease: Lease, target: Compiled, found: Judgement, change: StateChange) -> dict[str, Any]:
    """What the log says of it."""
    return {
        "version": target.version,
        "fingerprint": target.fingerprint,
        "before": {"version": lease.version, "fingerprint": lease.fingerprint},
        "migrations": [step.name for step in found.steps],
        "changed": list(change.changed),
        "held": sorted({one.channel for one in change.held}),
        "warnings": [*found.said(BREAKING), *found.said(WARNING)],
    }


def _checkpoint(lease: Lease, head: Head, target: Compiled, change: StateChange) -> NewCheckpoint:
    before, seq = head.payload, head.next_seq
    frontier = replace(Frontier.from_json(before.frontier), written=change.written)
    if change.held:
        frontier = hold_patch(frontier, change.held[0].task.visit, len(change.gates))
    there = {**change.state["scratch"], **change.state["artifacts"]}
    since = {name: n for name, n in before.versions.items() if name in there} | dict.fromkeys(change.changed, seq)
    whole = not (before.open or journal.entries(lease))
    return NewCheckpoint(
        Source.VERSION,
        replace(before, state=change.state, frontier=frontier.to_json(), versions=since),
        lease.superstep,
        {name: ops.put(there[name]) for name in change.changed},
        committed=whole,
        snapshot=target.snapshot,
        whole=True,
    )


def _refusal(lease: Lease, target: Compiled, found: Judgement, *, because: str = "") -> IncompatibleGraph:
    here = f"version {target.version} of {lease.graph}"
    said = because or "; ".join(found.said(BREAKING))
    if found.same_version:
        said += "; raise the version of the one that is here, then a migration can lead to it"
    message = f"the run began with version {lease.version} and cannot go on with {here}: {said}"
    facts: dict[str, Any] = {"version": target.version, "fingerprint": target.fingerprint, "because": because}
    return IncompatibleGraph(message, **facts, changes=[one.to_json() for one in found.differences])
