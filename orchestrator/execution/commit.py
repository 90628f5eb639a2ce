"""Commits of a slice: a superstep, a settlement, a rest. Each assembles everything first and then moves the head once.

Where somebody else wrote to the log meanwhile (a decision, an edit), the commit is built anew from what is there now
and tried again; the nodes do not run again, for the state's change stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db import Error

from approvals.gates.new_requests import Moment, NewRequests, ReachedGate, prepare_requests
from approvals.gates.request_state import RequestState
from approvals.gates.settlement import Rebasing, Settlement, rebase_writes, settle_gates
from approvals.gates.waivers import NotNeeded, Passed, prepare_not_needed
from approvals.gates.withdrawal import mark_withdrawn, withdrawn_events
from approvals.models import RequestStatus
from checkpoints.core import keep_policy, tape
from checkpoints.core.status import ENDS, Status
from checkpoints.db.statements import Update
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import ConcurrentUpdate, Head, NewCheckpoint, Payload, RunUpdate
from checkpoints.memory.landings import Commit
from checkpoints.models.checkpoint import Source
from orchestrator.engine import Task
from orchestrator.engine.effect import PURE
from orchestrator.engine.errors import MemoryConflict, SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.plan import Frontier, Planned, ending
from orchestrator.engine.reduce import HeldWrite, Settled, Step, settle_step
from orchestrator.engine.requests import is_applied_as_one
from orchestrator.execution import diagnostics, failed_save, summary
from orchestrator.execution import memory as execution_memory
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.memory import MemoryChanges, State
from orchestrator.execution.notes import NewNotes, new_notes
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.session import PendingCommit, Session, SuperstepResult, retry_when_log_moved


@frozen
class _Assembled:
    """A commit, ready to be sent; `after` is what the run would do next, `listing` and `inside` are written in it."""

    checkpoint: NewCheckpoint
    run_update: RunUpdate
    events: list[NewEvent]
    listing: Update | None
    inside: Callable[[], None] | None
    after: Planned
    decided: int


def commit_superstep(session: Session, worked: SuperstepResult, *, wait: bool = False) -> bool:
    """Commit a superstep: its state, the requests it opens, and what becomes of the run. Gives whether we still have
    it. Where nothing but pure tasks comes next, the commit may be on its way then: `await_commit` it.
    """

    lease = session.lease

    def act() -> tuple[Head, str]:
        it = _assemble(session, worked)
        try:
            made = _prepared(session, it)
            if not await_commit(session):
                return session.head, Status.RUNNING
            session.next_plan = it.after
            landing = made.send()
            if wait or not _may_overlap(session, it):
                landing()
            else:
                session.pending_commit = PendingCommit(landing, session.head, worked)
        except (SaveFailed, Error) as error:
            alone = it.inside is None and failed_save.may_continue(session.graph, worked.kept, it.run_update, it.after)
            if not (alone and failed_save.is_refusal(error)):
                raise
            session.next_plan = it.after
            head = failed_save.continue_unsaved(
                lease, session.head, it.checkpoint, it.run_update, events=it.events, error=error
            )
            return head, it.run_update.status
        return made.head, it.run_update.status

    return _still_ours(session, retry_when_log_moved(lease, act))


def _moment(session: Session, state: State, superstep: int, at: datetime) -> Moment:
    return Moment(state, superstep, session.input, at, unsigned=session.who_chose_reviewers)


def _prepared(session: Session, it: _Assembled) -> ledger.PreparedCommit:
    return ledger.prepare_commit(
        session.lease,
        session.head,
        it.checkpoint,
        it.run_update,
        events=it.events,
        also=it.listing,
        inside=it.inside,
        decided=it.decided,
    )


def await_commit(session: Session) -> bool:
    """Wait for the commit that is on its way, if one is. False: somebody else wrote to the run before it, so it was
    made anew; whatever was worked since began before that, and must begin again.
    """
    pending_commit, session.pending_commit = session.pending_commit, None
    if pending_commit is None:
        return True
    try:
        pending_commit.wait()
        return True
    except ConcurrentUpdate:
        session.head, session.retried, session.lease.moved = pending_commit.before, [], True
        ledger.refresh_lease(session.lease)
        commit_superstep(session, pending_commit.worked, wait=True)
        return False


def _may_overlap(session: Session, it: _Assembled) -> bool:
    """Whether what comes next may begin before the commit is certain: pure tasks, which may run at any time and again,
    while nobody is asked and no other rows are written in it.
    """
    waits = it.inside or session.retried or it.checkpoint.payload.frontier["waiting"]
    if waits or not it.after.starts or session.graph.graph.on_save_error == "continue":
        return False
    nodes = session.graph.nodes
    return all(nodes[start.task.node].effect == PURE and not nodes[start.task.node].gated for start in it.after.starts)


def _assemble(session: Session, worked: SuperstepResult) -> _Assembled:
    lease, graph, step, kept = session.lease, session.graph, worked.step, worked.kept
    number, at = lease.superstep + 1, datetime.now(UTC)
    reached = gates_to_ask(session, worked.context, kept, worked.before)
    outputs = {task: one.output for task, one in kept.items() if one.output}
    after = session.plan_after(step.frontier)
    status = _status(session, step.frontier, after)
    held = [write for write in step.held if write.task in reached]
    memory = _landed(session, step, held=held, outputs=outputs, at=at)
    state = _state_reviewers_see(session, step, memory, held)
    opening = prepare_requests(lease, graph, reached, step.held, _moment(session, state, number, at))
    rebased = rebase_writes(session.open_requests(), graph, state, at=at, protection=lease.protection)
    entries = summary.node_entries(graph, kept)
    checkpoint = NewCheckpoint(
        Source.SUPERSTEP,
        _payload(session, step, [(t.node, k.ms) for t, k in kept.items()], number),
        number,
        step.changes,
        nodes=entries,
        kept=_is_kept(session, worked, after, opens_gate=bool(reached), ends=status != Status.RUNNING),
        took_ms=worked.took_ms,
        snapshot=graph.snapshot,
        reads=memory.read_counts,
    )
    new_tape = tape.extend(lease.tape, summary.tape_word(entries))
    run_update = RunUpdate(status, _place(session, step.frontier, after), new_tape)
    passed = _not_needed(session, worked, at)
    noted = new_notes(session, kept, at)
    events = [*passed.events, *summary.unfinished_events(session.retried), *summary.task_events(kept), *memory.events]
    events += session.replay.events(kept) if session.replay is not None else []
    events += [*opening.events, *rebased.events, *noted.events]
    events += _status_events(session, status, step.frontier)
    journaled = any(graph.nodes[task.node].journaled for task in kept)
    listing = journal.list_update(lease, session.head.next_seq) if journaled else None
    inside = _extra_writes(session, opening, rebased, memory, passed, noted)
    return _Assembled(checkpoint, run_update, events, listing, inside, after, len(passed.decisions))


def _not_needed(session: Session, worked: SuperstepResult, at: datetime) -> NotNeeded:
    """What the system decides on tasks whose gates needed nobody."""
    found = {task: one.output for task, one in worked.kept.items() if one.passed and one.output}
    if session.replay is not None or not found:
        return NotNeeded(session.lease)
    starts = {start.task: start for start in worked.planned.starts}
    passed = {
        task: Passed(output, worked.context.input_hash(starts[task]), worked.kept[task].reads)
        for task, output in found.items()
    }
    first = ledger.first_event_seq(session.lease)
    return prepare_not_needed(session.lease, passed, session.head.payload.state, first_seq=first, at=at)


def _is_kept(session: Session, worked: SuperstepResult, after: Planned, *, opens_gate: bool, ends: bool) -> bool:
    """Whether the row of this superstep stays in the timeline."""
    superstep = keep_policy.Superstep(
        session.lease.superstep + 1,
        ran=[session.graph.nodes[start.task.node].checkpoint for start in worked.planned.starts],
        next=[session.graph.nodes[start.task.node].checkpoint for start in after.starts],
        asked=worked.asks_checkpoint,
        opens_gate=opens_gate,
        ends=ends,
    )
    return keep_policy.stays(session.graph.checkpoints, superstep)


def commit_settlement(session: Session, replayed: Sequence[Settled] = ()) -> bool:
    """Commit a settlement: no node runs, the settled writes are reduced, tokens flow. A replay says what it settles."""
    lease, graph = session.lease, session.graph

    def act() -> tuple[Head, str]:
        at = datetime.now(UTC)
        before = session.head.payload.state
        channels = execution_memory.held_channels(session.open_requests())
        state = execution_memory.memory_values(lease.protection, before, channels)
        settlement = Settlement([*replayed], []) if replayed else _settled_gates(session, state)
        others = [one for one in session.asked if one.request not in settlement.requests]
        if not settlement.settled:
            return _rebased_alone(session, others, state, at)
        step = settle_step(graph, session.frontier, before, settlement.settled)
        memory = _settled_memory(session, step, at)
        after = session.plan_after(step.frontier)
        session.next_plan = None if session.opened else after
        status = _status(session, step.frontier, after, apart_from=settlement.requests)
        if session.opened and status == Status.PAUSED:
            status = Status.RUNNING  # the superstep that is open comes next
        seen = _state_reviewers_see(session, step, memory)
        # Where a patch was rejected the run is over, whatever else people are still asked, or have decided.
        left = [one.request for one in others if one.request.status == RequestStatus.OPEN] if status in ENDS else []
        rebased = rebase_writes([] if status in ENDS else others, graph, seen, at=at, protection=lease.protection)
        checkpoint = _settlement_checkpoint(session, step, settlement.settled, ends=status in ENDS)
        run_update = RunUpdate(status, _place(session, step.frontier, after), tape.extend(lease.tape, "s"))
        applied = [*summary.gate_events(settlement.settled), *withdrawn_events(left)]
        events = [*applied, *memory.events, *rebased.events, *_status_events(session, status, step.frontier)]

        def inside() -> None:
            settlement.insert()
            rebased.insert()
            mark_withdrawn(left)
            memory.insert(lease, Commit(session.head.next_seq, lease.superstep, at))

        head = ledger.commit_superstep(lease, session.head, checkpoint, run_update, events=events, inside=inside)
        return head, status

    return _still_ours(session, retry_when_log_moved(lease, act))


def _settled_gates(session: Session, state: State) -> Settlement:
    return settle_gates(session.settled_gates(), session.graph, session.frontier, state, session.lease.protection)


def _rebased_alone(session: Session, others: Sequence[RequestState], state: State, at: datetime) -> tuple[Head, str]:
    """Nothing that was settled stands on what is there now: it comes back, and nothing else happens."""
    lease = session.lease
    rebased = rebase_writes(others, session.graph, state, at=at, protection=lease.protection)
    ledger.append_events(lease, rebased.events, inside=rebased.insert)
    lease.moved = True
    return session.head, Status.RUNNING


def _settlement_checkpoint(session: Session, step: Step, settled: Sequence[Settled], *, ends: bool) -> NewCheckpoint:
    """The checkpoint of a settlement; a superstep that was in hand stays so, unless the run is over."""
    number, snapshot = session.lease.superstep, session.graph.snapshot
    nodes, payload = summary.gate_entries(settled), _payload(session, step, [], number)
    whole = ends or not session.in_hand
    if session.opened and not ends:
        payload = replace(payload, open=session.head.payload.open | payload.open)
    return NewCheckpoint(
        Source.SETTLEMENT, payload, number, step.changes, nodes=nodes, committed=whole, snapshot=snapshot
    )


def commit_rest(session: Session) -> bool:
    """Nothing can start and nothing is settled: give the run back as it is. No checkpoint, for nothing happened.

    True, and nothing done, where a gate was settled since the last look.
    """
    status = Status(ending(session.graph, session.frontier))
    run_update = RunUpdate(status, _place(session, session.frontier, None), session.lease.tape)

    def act() -> bool:
        if session.has_settled_gate():
            return True
        ledger.stop_run(session.lease, run_update, events=_status_events(session, status, session.frontier))
        return False

    return retry_when_log_moved(session.lease, act)


def gates_to_ask(
    session: Session, context: SuperstepContext, kept: Mapping[Task, FinishedTask], before: OpenSuperstep
) -> dict[Task, ReachedGate]:
    """The gates that are asked now: those of kept tasks whose requests are not open yet. `context` is what the tasks
    read. A replay asks nobody.
    """
    if session.replay is not None:
        return {}
    asked = {task: one for task, one in kept.items() if one.gated and task not in before.asked}
    if not asked:
        return {}
    gates = {task: session.graph.nodes[one.guard or task.node].gate for task, one in asked.items()}
    starts, head = {start.task: start for start in context.starts}, session.head
    return {
        task: ReachedGate(
            gate,
            asked[task].why,
            guard=asked[task].guard or task.node,
            reads=asked[task].reads,
            all_or_nothing=_as_a_whole(session, task, asked[task]),
            input_hash=context.input_hash(starts[task]),
            prepared_from=head.id if head.is_stored else None,
        )
        for task, gate in gates.items()
        if gate
    }


def _as_a_whole(session: Session, task: Task, one: FinishedTask) -> bool:
    channels = [write.channel for write in one.held(task)]
    return one.guard is not None or is_applied_as_one(session.graph, task.node, channels)


def _settled_memory(session: Session, step: Step, at: datetime) -> MemoryChanges:
    """What a settlement writes to memory. Raises `ConcurrentUpdate` where memory changed: the next look re-bases it."""
    try:
        return _landed(session, step, at=at)
    except MemoryConflict as conflict:
        raise ConcurrentUpdate from conflict


def _landed(session: Session, step: Step, **how: Any) -> MemoryChanges:
    """What a commit does to memory. What a replay remembers is in its checkpoint alone. Raises `MemoryConflict`."""
    if session.replay is not None:
        return execution_memory.NOTHING
    return execution_memory.check_landings(session.lease, session.graph, step.memory, **how)


def _state_reviewers_see(session: Session, step: Step, memory: MemoryChanges, held: Sequence[HeldWrite] = ()) -> State:
    """The state after the step, with what memory then holds for writes that gates hold."""
    asked = session.open_requests()
    if not (asked or held):
        return step.state
    channels = execution_memory.held_channels(asked, held)
    return execution_memory.memory_values(session.lease.protection, step.state, channels, memory.landings)


def _status(session: Session, frontier: Frontier, after: Planned, *, apart_from: Any = ()) -> str:
    if after.starts:
        return Status.RUNNING
    status = Status(ending(session.graph, frontier))
    if session.replay is not None and status == Status.PAUSED:
        return Status.RUNNING  # what was decided is applied next
    waits = [one for one in session.settled_gates(frontier) if one.request not in apart_from]
    return Status.RUNNING if status == Status.PAUSED and waits else status


def _place(session: Session, frontier: Frontier, after: Planned | None) -> str:
    return summary.place_of(frontier, after, session.stopped_before(frontier))


def _status_events(session: Session, status: str, frontier: Frontier) -> list[NewEvent]:
    return summary.status_events(status, frontier, session.stopped_before(frontier))


def _payload(session: Session, step: Step, ran: list[tuple[str, int]], supersteps: int) -> Payload:
    before, seq = session.head.payload, session.head.next_seq
    return Payload(
        step.state,
        diagnostics.after(before.diagnostics, ran, supersteps=supersteps),
        step.frontier.to_json(),
        {**before.versions, **dict.fromkeys(step.changes, seq)},
        session.overlay_after(step.memory),
    )


def _extra_writes(
    session: Session, opening: NewRequests, rebased: Rebasing, memory: MemoryChanges, passed: NotNeeded, noted: NewNotes
) -> Callable[[], None] | None:
    if not (opening.requests or rebased.rows or rebased.reopened or memory or passed.decisions or noted):
        return None
    commit = Commit(session.head.next_seq, session.lease.superstep + 1, datetime.now(UTC))

    def inside() -> None:
        opening.insert()
        passed.insert()
        rebased.insert()
        memory.insert(session.lease, commit)
        noted.insert()

    return inside


def _still_ours(session: Session, outcome: tuple[Head, str]) -> bool:
    head, status = outcome
    if head is not session.head:
        session.advance_to(head)
    return status == Status.RUNNING
