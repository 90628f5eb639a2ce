"""Adoption of another version of its graph by a run: judged, migrated and pinned again
in one fenced commit.

Called only by a process that may judge, with the run's lease. New values of guarded
channels are held for signatures.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import Q

from approvals.gates import settlement
from approvals.gates.guarded_channels import signed_channels
from approvals.gates.new_requests import (
    Moment,
    ReachedGate,
    patch_gate,
    prepare_requests,
)
from approvals.gates.request_state import RequestState
from approvals.gates.reviewed_channels import (
    channels_under_review,
    nodes_silence_approves,
)
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
from checkpoints.models import PendingWrite
from checkpoints.models.checkpoint import Source
from checkpoints.models.fields import of_tasks
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Gate, Task
from orchestrator.engine.errors import IncompatibleGraph, InvalidValue, PayloadTooLarge
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.graphs.call import is_call
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.held_patch import hold_patch
from orchestrator.engine.step.plan import unplanned
from orchestrator.engine.values import ops
from orchestrator.engine.versions.differences import BREAKING, WARNING
from orchestrator.engine.versions.judgement import Judgement
from orchestrator.engine.versions.migration import misread_channels
from orchestrator.engine.versions.pending_parts import (
    kept_ways,
    lost_ways,
    pending_parts,
)
from orchestrator.execution import memory as execution_memory
from orchestrator.execution import summary
from orchestrator.execution.adoption.state_change import (
    StateChange,
    change_of,
    require_gates,
)
from orchestrator.execution.calls import fitted_arguments, passed_arguments
from orchestrator.execution.open_superstep import OpenSuperstep
from orchestrator.execution.session import retry_when_log_moved


def adopt_version(lease: Lease, head: Head, run_input: Any, target: Compiled) -> Head:
    """Continue a leased run with the version `target`. Returns its new head; from then
    on the lease names that version.

    Raises `IncompatibleGraph` with every difference if the run cannot continue with it,
    or if a migration fails; then nothing was written. Raises `StaleLease` if the lease
    is lost.
    """
    pending = pending_parts(head.payload.frontier, head.payload.open)
    # A function, because only a judgement with a breaking migration asks for it.
    held = partial(_channels_to_be_written, lease)
    silent = partial(_nodes_silence_approves, lease)
    judgement = versions.judgement_of(lease, target, pending, held=held, silent=silent)
    if not judgement.adopted:
        raise _refusal(lease, target, judgement)
    try:
        entries = journal.entries(lease)
        # All refusals come before the commit, so that a refused run stays as it was.
        _require_same_superstep(head, target, entries)
        _require_gates_of_settled(lease, target, entries)
        _require_same_arguments(head, target)
        change = change_of(lease, head, target, judgement)
        _require_same_meaning(lease, head, target, judgement, entries)
        commit = partial(_commit, lease, head, run_input, target, judgement, change)
        return retry_when_log_moved(lease, commit)
    except (InvalidValue, PayloadTooLarge) as error:
        raise _refusal(lease, target, judgement, because=error.message) from error


def _require_same_superstep(
    head: Head, target: Compiled, entries: Mapping[Task, Entry]
) -> None:
    """Raise `InvalidValue` if the target would not begin each task of the current
    superstep, or lacks an edge along which the result of one of them leads.
    """
    open_ = OpenSuperstep.from_json(head.payload.open)
    begun = {*open_.results, *open_.tries, *entries}
    # A task that began and is not planned again would be forgotten, with its effect.
    if begun:
        frontier = Frontier.from_json(head.payload.frontier)
        missing = unplanned(target, frontier, begun, stops=open_.without)
        if missing:
            raise InvalidValue(
                f"{', '.join(missing)} began in the superstep in hand, and would not "
                f"begin in it in version {target.version}",
                tasks=missing,
            )
    ways: list[str] = []
    for task, entry in entries.items():
        if entry.output:
            ways += kept_ways(task.node, entry.output)
    lost = lost_ways(ways, target.edge)
    if lost:
        raise InvalidValue(
            f"a result that is kept leads along {', '.join(lost)}, "
            f"which version {target.version} lacks",
            edges=lost,
        )


def _require_gates_of_settled(
    lease: Lease, target: Compiled, entries: Mapping[Task, Entry]
) -> None:
    """Raise `InvalidValue` if a person settled what an effect returned, it has to be
    signed, and the target has no gate for it that asks as much.
    """
    settled = {
        task: entry.output
        for task, entry in entries.items()
        if entry.settled and entry.output
    }
    if not settled:
        return
    # What has to be signed is judged by the version that the run leaves.
    old = versions.structure_of(lease.fingerprint)
    signed = signed_channels(lines.past(lease.id, lease.line), old or {"nodes": ()})
    for task, output in settled.items():
        written = {write["channel"] for write in output["writes"]}
        touched = {name: signed[name] for name in sorted(written & {*signed})}
        what = f"the output of {task} that was settled sets"
        require_gates(old, target, touched, what=what)


def _require_same_arguments(head: Head, target: Compiled) -> None:
    """Raise `InvalidValue` if the target would call a node with other arguments than
    those that passed its gate, and have no result yet.
    """
    open_ = OpenSuperstep.from_json(head.payload.open)
    for task, args in passed_arguments(open_).items():
        fitted_arguments(target, task, args)


def _require_same_meaning(
    lease: Lease,
    head: Head,
    target: Compiled,
    judgement: Judgement,
    entries: Mapping[Task, Entry],
) -> None:
    """Raise `InvalidValue` if a migration changes the meaning of a value that waits to
    be written: what was proposed or signed in euros must not be set as cents.
    """
    # Only a migration can change what a value means.
    if not judgement.steps:
        return
    proposed = _proposed_writes(lease, head)
    _require_no_call(lease, head, judgement, proposed)
    misread = misread_channels(
        target,
        judgement.steps,
        head.payload.state,
        _values_to_be_written(head, entries, proposed),
        limit=conf().max_value_bytes,
    )
    if not misread:
        return
    channels = ", ".join(f"`{name}`" for name in misread)
    way = ", ".join(step.name for step in judgement.steps)
    raise InvalidValue(
        f"the migration from {way} changes what {channels} means, and a value of "
        f"version {lease.version} waits to be written there, which no migration sees; "
        f"let the run end on version {lease.version}, registered beside the new one, "
        "or fork it from a checkpoint before that value",
        channels=misread,
    )


def _proposed_writes(lease: Lease, head: Head) -> list[PendingWrite]:
    """Return every revision of the writes about which people are asked, or will be
    asked again because a deadline has closed their request: any of them may come to be
    applied. One query. Raises `TamperedRow`, `WrongKey`.
    """
    tasks = _tasks_asked(head)
    if not tasks:
        return []
    rows = list(PendingWrite.objects.filter(of_tasks(lease.id, lease.line, tasks)))
    sealed_rows.verify_rows(rows, lease.protection)
    return rows


def _require_no_call(
    lease: Lease, head: Head, judgement: Judgement, proposed: Sequence[PendingWrite]
) -> None:
    """Raise `InvalidValue` if a call waits: its node is given the state from which the
    call was prepared, which no migration sees.
    """
    frontier = Frontier.from_json(head.payload.frontier)
    calls = [str(task) for task in frontier.ready_calls()]
    # One that needed nobody waits for its next attempt.
    calls += map(str, passed_arguments(OpenSuperstep.from_json(head.payload.open)))
    calls += [row.task for row in proposed if is_call(row.channel)]
    calls = list(dict.fromkeys(calls))
    if calls:
        way = ", ".join(step.name for step in judgement.steps)
        raise InvalidValue(
            f"{', '.join(calls)} waits with the state of version {lease.version}, "
            f"which the migration from {way} does not see; let the run end on version "
            f"{lease.version}, registered beside the new one, or fork it from before",
            tasks=calls,
        )


def _values_to_be_written(
    head: Head, entries: Mapping[Task, Entry], proposed: Sequence[PendingWrite]
) -> list[tuple[str, Any]]:
    """Return (channel, value) of each write that waits: recorded in the journal, kept
    of the open superstep, or held by a gate.
    """
    values: list[tuple[str, Any]] = []
    for entry in entries.values():
        if entry.output:
            for recorded in entry.output["writes"]:
                values.append((recorded["channel"], recorded["value"]))
    for result in OpenSuperstep.from_json(head.payload.open).results.values():
        if result.output:
            for write in result.output.writes:
                is_asked = write.question is not None
                values.append(_waiting(head, write.channel, write.value, is_asked))
    for row in proposed:
        is_asked = is_unanswered(read_value(row, "shown"))
        values.append(_waiting(head, row.channel, read_value(row, "value"), is_asked))
    return values


def _waiting(
    head: Head, channel: str, value: Any, is_unanswered: bool
) -> tuple[str, Any]:
    """Return the channel and the value of a write that waits: of a question the present
    value, because nothing else says what its answer will mean.
    """
    if is_unanswered:
        state = head.payload.state
        value = {**state["scratch"], **state["artifacts"]}.get(channel)
    return channel, value


def _channels_to_be_written(lease: Lease) -> set[str]:
    """Return the channels of values that wait to be written: people are asked about
    them, or a task that was cut off returned them.
    """
    channels: set[str] = set()
    for entry in journal.entries(lease).values():
        if entry.output:
            channels.update(write["channel"] for write in entry.output["writes"])
    under_review = channels_under_review(Q(run=lease.id))
    return channels | under_review.get(lease.id, set())


def _nodes_silence_approves(lease: Lease) -> set[str]:
    return nodes_silence_approves(Q(run=lease.id)).get(lease.id, set())


def _commit(
    lease: Lease,
    head: Head,
    run_input: Any,
    target: Compiled,
    judgement: Judgement,
    change: StateChange,
) -> Head:
    """Pin the run to its new version, with a checkpoint that has the state with which
    it continues.
    """
    # The database's clock decides when windows end.
    at = lease.now()
    waiting = _waiting_requests(lease, head)
    opening = prepare_requests(
        lease,
        target,
        _reached_gates(target, judgement, change, run_input),
        change.held,
        _moment(lease, run_input, change),
    )
    channels = execution_memory.held_channels(waiting, change.held)
    state = execution_memory.memory_values(lease.protection, change.state, channels)
    rebased = rebase_writes(waiting, target, state, at=at, protection=lease.protection)
    # The facts name the version before, which the lease names only until the next line.
    facts = _facts(lease, target, judgement, change)
    _pin(lease, target.version, target.fingerprint)
    checkpoint = _checkpoint(lease, head, target, change)
    place = summary.place_of(Frontier.from_json(checkpoint.payload.frontier), None)
    run_update = RunUpdate(Status.RUNNING, place, lease.tape, pins=True)
    events = [NewEvent("version_changed", facts), *opening.events, *rebased.events]

    def inside() -> None:
        opening.insert()
        rebased.insert()

    try:
        return ledger.commit_superstep(
            lease, head, checkpoint, run_update, events=events, inside=inside
        )
    except BaseException:
        # Nothing was written, so the lease names the old version again.
        _pin(lease, facts["before"]["version"], facts["before"]["fingerprint"])
        raise


def _pin(lease: Lease, version: str, fingerprint: str) -> None:
    lease.version = version
    lease.fingerprint = fingerprint


def _tasks_asked(head: Head) -> set[Task]:
    """Return the tasks that wait for people."""
    frontier = Frontier.from_json(head.payload.frontier)
    return frontier.gated() | OpenSuperstep.from_json(head.payload.open).tasks_asked


def _waiting_requests(lease: Lease, head: Head) -> Sequence[RequestState]:
    tasks = _tasks_asked(head)
    if not tasks:
        return []
    return settlement.waiting_requests(lease, tasks)


def _reached_gates(
    target: Compiled, judgement: Judgement, change: StateChange, run_input: Any
) -> dict[Task, ReachedGate]:
    way = ", ".join(step.name for step in judgement.steps)
    reached: dict[Task, ReachedGate] = {}
    for task, node in change.gates.items():
        declared = target.nodes[node].gate or Gate()
        gate = gate_on_run(target, declared, run_input)
        channels = [write.channel for write in change.held if write.task == task]
        why = (
            f"The migration from {way} set this, "
            f"so it needs the signatures that the gate of {node} asks for"
        )
        reached[task] = patch_gate(gate, channels, why, guard=node)
    return reached


def _moment(lease: Lease, run_input: Any, change: StateChange) -> Moment:
    # A function that names reviewers gets values of the types that it knows.
    return Moment(
        change.state,
        lease.superstep,
        run_input,
        lease.now(),
        asked_on=change.unheld,
        unsigned=partial(_unsigned_change, lease),
    )


def _unsigned_change(lease: Lease, reads: Collection[str], decides: str) -> str:
    """Return the sentence on who changed one of these channels without a signature, and
    so decided whom a gate asks, or until when.
    """
    if not reads:
        return ""
    changes = unsigned_changes(lines.past(lease.id, lease.line))
    return sentence_of(changes, reads, decides=decides)


def _facts(
    lease: Lease, target: Compiled, judgement: Judgement, change: StateChange
) -> dict[str, Any]:
    """Return the facts of the event `version_changed`."""
    return {
        "version": target.version,
        "fingerprint": target.fingerprint,
        "before": {"version": lease.version, "fingerprint": lease.fingerprint},
        "migrations": [step.name for step in judgement.steps],
        "changed": list(change.changed),
        "held": sorted({write.channel for write in change.held}),
        "warnings": [*judgement.in_words(BREAKING), *judgement.in_words(WARNING)],
    }


def _checkpoint(
    lease: Lease, head: Head, target: Compiled, change: StateChange
) -> NewCheckpoint:
    before = head.payload
    frontier = replace(Frontier.from_json(before.frontier), written=change.written)
    if change.held:
        frontier = hold_patch(frontier, change.held[0].task.visit, len(change.gates))
    values = {**change.state["scratch"], **change.state["artifacts"]}
    # Channels that the new version lacks are left out.
    set_at = {name: seq for name, seq in before.versions.items() if name in values}
    set_at |= dict.fromkeys(change.changed, head.next_seq)
    payload = replace(
        before, state=change.state, frontier=frontier.to_json(), versions=set_at
    )
    return NewCheckpoint(
        Source.VERSION,
        payload,
        lease.superstep,
        {name: ops.put(values[name]) for name in change.changed},
        # A superstep that is open, or was cut off, stays in hand.
        committed=not (before.open or journal.entries(lease)),
        snapshot=target.snapshot,
        # Channels came or went, so a change of single channels would not be enough.
        whole=True,
    )


def _refusal(
    lease: Lease, target: Compiled, judgement: Judgement, *, because: str = ""
) -> IncompatibleGraph:
    reason = because or "; ".join(judgement.in_words(BREAKING))
    if judgement.same_version:
        reason += (
            "; raise the version of the one that is here, "
            "then a migration can lead to it"
        )
    message = (
        f"the run began with version {lease.version} and cannot go on with "
        f"version {target.version} of {lease.graph}: {reason}"
    )
    facts: dict[str, Any] = {
        "version": target.version,
        "fingerprint": target.fingerprint,
        "because": because,
    }
    changes = [difference.to_json() for difference in judgement.differences]
    return IncompatibleGraph(message, **facts, changes=changes)
