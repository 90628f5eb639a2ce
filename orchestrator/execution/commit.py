"""Commits of a slice: a superstep, a settlement, a rest. Each assembles everything
first and then moves the head once.

If another process wrote to the log meanwhile (a decision, an edit), the commit is built
again from the new rows and retried; the nodes do not run again, because their change of
the state stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from django.db import Error

from approvals.answers.vetoes import VetoAnswer, prepare_vetoes
from approvals.answers.windows import add_window_jobs
from approvals.gates.new_requests import (
    Moment,
    NewRequests,
    ReachedGate,
    prepare_requests,
)
from approvals.gates.request_state import RequestState
from approvals.gates.settlement import Rebasing, Settlement, rebase_writes
from approvals.gates.waivers import NotNeeded, Passed, prepare_not_needed
from approvals.gates.withdrawal import mark_withdrawn, withdrawn_events
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core import keep_policy, tape
from checkpoints.core.status import ENDS, Status
from checkpoints.db.statements import Update
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import (
    ConcurrentUpdate,
    Head,
    NewCheckpoint,
    Payload,
    RunUpdate,
)
from checkpoints.memory.landings import Commit
from checkpoints.models.checkpoint import Source
from orchestrator.engine import Task
from orchestrator.engine.errors import MemoryConflict, SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import is_applied_as_one
from orchestrator.engine.graphs.effect import PURE
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.plan import Frontier, Planned, Start, ending
from orchestrator.engine.step.reduce import (
    HeldWrite,
    Output,
    Settled,
    StepResult,
    settle_step,
)
from orchestrator.execution import diagnostics, failed_save, renewals, summary
from orchestrator.execution import memory as execution_memory
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.memory import MemoryChanges, State
from orchestrator.execution.notes import NewNotes, new_notes
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.session import (
    PendingCommit,
    Session,
    SuperstepResult,
    retry_when_log_moved,
)
from orchestrator.execution.stop_log import log_end
from orchestrator.execution.vetoes import Vetted, vetted_settlement


@frozen
class _Assembled:
    """A superstep's commit, ready to be sent. `after` is what the run would do next;
    `listing` and `inside` are written in the same transaction. `rebases` is true if
    writes come back to their reviewers.
    """

    checkpoint: NewCheckpoint
    run_update: RunUpdate
    events: list[NewEvent]
    listing: Update | None
    inside: Callable[[], None] | None
    after: Planned
    decided: int
    rebases: bool


def commit_superstep(
    session: Session, worked: SuperstepResult, *, wait: bool = False
) -> bool:
    """Commit a superstep: its state, the requests it opens, and what becomes of the
    run. Returns whether the slice still has the run.

    If only pure tasks come next, the commit may still be on its way then:
    `await_commit` it.
    """

    def act() -> tuple[Head, str]:
        assembled = _assemble(session, worked)
        try:
            return _send(session, worked, assembled, wait=wait)
        except (SaveFailed, Error) as error:
            if not _may_continue_unsaved(session, worked, assembled, error):
                raise
            return _continue_unsaved(session, assembled, error)

    return _still_ours(session, retry_when_log_moved(session.lease, act))


def _send(
    session: Session, worked: SuperstepResult, assembled: _Assembled, *, wait: bool
) -> tuple[Head, str]:
    # Prepared while the commit before it may still be on its way, so that the wait for
    # that one is short.
    prepared = ledger.prepare_commit(
        session.lease,
        session.head,
        assembled.checkpoint,
        assembled.run_update,
        events=assembled.events,
        also=assembled.listing,
        inside=assembled.inside,
        decided=assembled.decided,
    )
    # That commit was made again, so this one was built on a head that does not exist.
    if not await_commit(session):
        return session.head, Status.RUNNING
    session.next_plan = assembled.after
    wait_for_answer = prepared.send()
    # The next look has to see the new revisions, and the requests that are open again.
    if assembled.rebases:
        session.lease.moved = True
    if wait or not _may_overlap(session, assembled):
        wait_for_answer()
    else:
        session.pending_commit = PendingCommit(wait_for_answer, session.head, worked)
    return prepared.head, assembled.run_update.status


def _may_continue_unsaved(
    session: Session, worked: SuperstepResult, assembled: _Assembled, error: Exception
) -> bool:
    """Return whether the run goes on although this superstep could not be saved."""
    # Requests, decisions, memory and notes are in the same transaction, and only a
    # point of the timeline may be missing.
    if assembled.inside is not None:
        return False
    may_continue = failed_save.may_continue(
        session.graph, worked.results, assembled.run_update, assembled.after
    )
    return may_continue and failed_save.is_refusal(error)


def _continue_unsaved(
    session: Session, assembled: _Assembled, error: Exception
) -> tuple[Head, str]:
    session.next_plan = assembled.after
    head = failed_save.continue_unsaved(
        session.lease,
        session.head,
        assembled.checkpoint,
        assembled.run_update,
        events=assembled.events,
        error=error,
    )
    return head, assembled.run_update.status


def await_commit(session: Session) -> bool:
    """Wait for the commit that is on its way, if there is one.

    Returns False if another process wrote to the run before it, so that it was made
    again: whatever was worked since then began too early and has to begin again.
    """
    pending = session.pending_commit
    # Cleared first, because the commit that is made again must not wait for itself.
    session.pending_commit = None
    if pending is None:
        return True
    try:
        pending.wait()
        return True
    except ConcurrentUpdate:
        # Built again on the head before it, from what the other process wrote.
        session.head = pending.before
        session.retried = []
        session.lease.moved = True
        ledger.refresh_lease(session.lease)
        commit_superstep(session, pending.worked, wait=True)
        return False


def _may_overlap(session: Session, assembled: _Assembled) -> bool:
    """Return whether the next superstep may begin before the commit is certain.

    It may if only pure tasks come next, which may run at any time and again, and if the
    commit neither asks people nor writes further rows.
    """
    graph = session.graph
    # The retries are known only here, and their events would be missing in a commit
    # that is made again.
    if assembled.inside or session.retried or not assembled.after.starts:
        return False
    # Beside an open gate people may sign at any moment, and the commit is made again.
    if assembled.checkpoint.payload.frontier["waiting"]:
        return False
    # Only a commit that is waited for can become an unsaved superstep if it is refused.
    if graph.graph.on_save_error == "continue":
        return False
    for start in assembled.after.starts:
        node = graph.nodes[start.task.node]
        if node.effect != PURE or node.gated:
            return False
    return True


def _assemble(session: Session, worked: SuperstepResult) -> _Assembled:
    """Build everything that one commit writes."""
    lease = session.lease
    graph = session.graph
    step = worked.step
    results = worked.results
    superstep = lease.superstep + 1

    # The run's next step, and the rows written with the checkpoint, come first.
    after = session.plan_after(step.frontier)
    status = _status(session, step.frontier, after)
    beside = None
    if not _writes_checkpoint_alone(session, worked):
        # The database's clock decides when windows end.
        beside = _rows_beside(session, worked, lease.now())

    # Now the rows: the checkpoint, and the run's own.
    entries = summary.node_entries(graph, results)
    stays = _stays_in_timeline(
        session,
        worked,
        after,
        beside,
        ends=status != Status.RUNNING,
    )
    checkpoint = NewCheckpoint(
        Source.SUPERSTEP,
        _payload(session, step, superstep, worked.planned.starts, results),
        superstep,
        step.changes,
        nodes=entries,
        kept=stays,
        took_ms=worked.took_ms,
        snapshot=graph.graph.snapshot,
        reads=beside.memory.read_counts if beside else {},
    )
    stopped = session.stopped_before(step.frontier) if session.stops else []
    run_update = RunUpdate(
        status,
        summary.place_of(step.frontier, after, stopped),
        tape.extend(lease.tape, summary.tape_word(entries)),
    )
    events = _events(session, results, beside)
    if status != Status.RUNNING:
        events += summary.status_events(status, step.frontier, stopped)

    return _Assembled(
        checkpoint,
        run_update,
        events,
        _listing(session, results) if graph.has_journaled else None,
        _extra_writes(session, beside) if beside else None,
        after,
        decided=len(beside.not_needed.decisions) if beside else 0,
        rebases=beside is not None and bool(beside.rebased.rows),
    )


def _listing(session: Session, results: Mapping[Task, FinishedTask]) -> Update | None:
    """Return the update that lists journaled results with their checkpoint; None if
    there are none.
    """
    # Only a result that a checkpoint lists counts on later lines.
    if any(session.graph.nodes[task.node].journaled for task in results):
        return journal.list_update(session.lease, session.head.next_seq)
    return None


def _writes_checkpoint_alone(session: Session, worked: SuperstepResult) -> bool:
    """Return whether nothing is written beside the checkpoint of a superstep: its tasks
    ended as usual, without memory or notes, and no held write is bound to what they
    changed.
    """
    step = worked.step
    if session.replay is not None or session.retried or step.held or step.memory:
        return False
    for result in worked.results.values():
        if not result.is_plain:
            return False
    return not session.requests_bound_to(step.changes)


@frozen
class _RowsBeside:
    """The rows that a superstep writes beside its checkpoint, with their events."""

    opening: NewRequests
    rebased: Rebasing
    memory: MemoryChanges
    not_needed: NotNeeded
    noted: NewNotes


def _rows_beside(
    session: Session, worked: SuperstepResult, at: datetime
) -> _RowsBeside:
    """Return the requests that a superstep opens, the held writes that it moves, and
    what its tasks remember and note. Raises `MemoryConflict`, and `InvalidValue` if a
    function for reviewers fails.
    """
    lease = session.lease
    graph = session.graph
    step = worked.step
    results = worked.results
    reached = gates_to_ask(session, worked.context, results, worked.before)

    # People are shown the state after this superstep, with what memory then holds.
    # While the superstep was open, people were already asked about the tasks that are
    # not in `reached`.
    held = [write for write in step.held if write.task in reached]
    outputs = {task: result.output for task, result in results.items() if result.output}
    memory = _memory_changes(session, step, held=held, outputs=outputs, at=at)
    state = _state_reviewers_see(session, step, memory, held)
    moment = Moment(
        state,
        lease.superstep + 1,
        session.input,
        at,
        unsigned=session.unsigned_change,
    )
    opening = prepare_requests(lease, graph, reached, step.held, moment)
    rebased = rebase_writes(
        session.requests_bound_to(step.changes),
        graph,
        state,
        at=at,
        protection=lease.protection,
    )
    return _RowsBeside(
        opening,
        rebased,
        memory,
        _not_needed(session, worked, at),
        new_notes(session, results, at),
    )


def _events(
    session: Session, results: Mapping[Task, FinishedTask], beside: _RowsBeside | None
) -> list[NewEvent]:
    """Return the events of a superstep in the order of the run's log, without the one
    of a run that rests or ends.
    """
    if beside is None:
        return []
    # Those of decisions come first, because the rows of the decisions name them by
    # their numbers.
    events = [
        *beside.not_needed.events,
        *summary.unfinished_events(session.retried),
        *summary.task_events(results),
        *beside.memory.events,
    ]
    if session.replay is not None:
        events += session.replay.events(results)
    events += beside.opening.events
    events += beside.rebased.events
    events += beside.noted.events
    return events


def _not_needed(session: Session, worked: SuperstepResult, at: datetime) -> NotNeeded:
    """Return the system's decisions on tasks whose gates did not need anyone."""
    results = worked.results
    outputs: dict[Task, Output] = {}
    for task, result in results.items():
        if not result.passed:
            continue
        # A decision about a call is about its arguments, whatever their outcome.
        if result.call is not None:
            outputs[task] = Output((result.call,))
        # If no node prepares this call any longer, its subject is unknown.
        elif result.output and not result.why:
            outputs[task] = result.output
    if session.replay is not None or not outputs:
        return NotNeeded(session.lease)
    starts = {start.task: start for start in worked.planned.starts}
    passed: dict[Task, Passed] = {}
    for task, output in outputs.items():
        input_hash = worked.context.input_hash(starts[task])
        passed[task] = Passed(output, input_hash, results[task].reads)
    return prepare_not_needed(
        session.lease,
        passed,
        session.head.payload.state,
        # Each decision names its event, which is written first in this commit.
        first_seq=ledger.first_event_seq(session.lease),
        at=at,
    )


def _stays_in_timeline(
    session: Session,
    worked: SuperstepResult,
    after: Planned,
    beside: _RowsBeside | None,
    *,
    ends: bool,
) -> bool:
    """Return whether the row of this superstep stays in the timeline."""
    if session.graph.keeps_every_row:
        return True
    nodes = session.graph.nodes
    superstep = keep_policy.PolicySuperstep(
        session.lease.superstep + 1,
        ran=[nodes[start.task.node].checkpoint for start in worked.planned.starts],
        next=[_setting_before(nodes[start.task.node], start) for start in after.starts],
        asks_checkpoint=worked.asks_checkpoint,
        opens_gate=beside is not None and bool(beside.opening.requests),
        ends=ends,
    )
    return keep_policy.stays(session.graph.checkpoints, superstep)


def _setting_before(node: Node, start: Start) -> str | None:
    """Return the checkpoint setting that counts for the row before a task starts. The
    state from which a call is prepared has to stay: the node is given it later.
    """
    if node.calls and not start.is_call:
        return "before"
    return node.checkpoint


def commit_settlement(
    session: Session, heart: Heartbeat, replayed: Sequence[Settled] = ()
) -> bool:
    """Commit a settlement: no node runs, the settled writes are reduced, tokens flow.
    For a replay, `replayed` are the gates that it settles. Returns whether the slice
    still has the run.
    """

    def act() -> tuple[Head, str]:
        return _settle(session, heart, replayed)

    return _still_ours(session, retry_when_log_moved(session.lease, act))


def _settle(
    session: Session, heart: Heartbeat, replayed: Sequence[Settled]
) -> tuple[Head, str]:
    lease = session.lease
    graph = session.graph
    before = session.head.payload.state
    # The database's clock decides when windows end.
    at = lease.now()

    # Which decisions still stand on what is there now.
    channels = execution_memory.held_channels(session.open_requests())
    state = execution_memory.memory_values(lease.protection, before, channels)
    vetted = _vetted(session, heart, state, replayed)
    settlement = vetted.settlement
    unsettled = [
        waiting
        for waiting in session.requests
        if waiting.request not in settlement.requests
    ]
    if not settlement.settled:
        return _commit_rebased(session, unsettled, vetted.answers, state, at)

    step = settle_step(graph, session.frontier, before, settlement.settled)
    memory = _settled_memory(session, step, at)
    after = session.plan_after(step.frontier)
    # A superstep that is open is planned again with the stops that it began with.
    session.next_plan = None if session.opened else after
    status = _status(session, step.frontier, after, apart_from=vetted.closed)
    if session.opened and status == Status.PAUSED:
        # The superstep that is open comes next.
        status = Status.RUNNING
    ends = status in ENDS

    # A rejected patch ends the run, whatever else people are still asked or have
    # decided: open requests are withdrawn, and no write is rebased.
    withdrawn: list[ApprovalRequest] = []
    answers = vetted.answers
    state_after = _state_reviewers_see(session, step, memory)
    if ends:
        withdrawn = _still_open(unsettled)
        unsettled = []
        # Nothing is reopened either.
        answers = vetted.let_pass
    rebased = rebase_writes(
        unsettled, graph, state_after, at=at, protection=lease.protection
    )
    vetoes = prepare_vetoes(
        lease, answers, first_seq=ledger.first_event_seq(lease), at=at
    )

    checkpoint = _settlement_checkpoint(session, step, settlement.settled, ends=ends)
    stopped = session.stopped_before(step.frontier)
    place = summary.place_of(step.frontier, after, stopped)
    run_update = RunUpdate(status, place, tape.extend(lease.tape, "s"))
    # Those of vetoes come first, because their rows name them by their numbers.
    events = [
        *vetoes.events,
        *summary.gate_events(settlement.settled),
        *withdrawn_events(withdrawn),
        *memory.events,
        *rebased.events,
        *summary.status_events(status, step.frontier, stopped),
    ]

    # Requests and writes before memory: the order of locks is the same everywhere.
    def inside() -> None:
        settlement.insert()
        vetoes.insert()
        rebased.insert()
        mark_withdrawn(withdrawn)
        memory.insert(lease, Commit(session.head.next_seq, lease.superstep, at))

    head = ledger.commit_superstep(
        lease,
        session.head,
        checkpoint,
        run_update,
        events=events,
        inside=inside,
        decided=len(vetoes.decisions),
    )
    return head, status


def _still_open(waiting: Sequence[RequestState]) -> list[ApprovalRequest]:
    requests = [state.request for state in waiting]
    return [request for request in requests if request.status == RequestStatus.OPEN]


def _vetted(
    session: Session, heart: Heartbeat, state: State, replayed: Sequence[Settled]
) -> Vetted:
    # A replay applies what its origin has applied, where vetoes were asked.
    if replayed:
        return Vetted(Settlement([*replayed], []), [])
    return vetted_settlement(session, heart, state)


def _commit_rebased(
    session: Session,
    waiting: Sequence[RequestState],
    answers: Sequence[VetoAnswer],
    state: State,
    at: datetime,
) -> tuple[Head, str]:
    """Commit only that writes come back: nothing that was settled still stands on the
    present state, or passes its veto, so it returns to the reviewers.
    """
    lease = session.lease
    rebased = rebase_writes(
        waiting, session.graph, state, at=at, protection=lease.protection
    )
    vetoes = prepare_vetoes(
        lease, answers, first_seq=ledger.first_appended_seq(lease), at=at
    )

    def inside() -> None:
        vetoes.insert()
        rebased.insert()

    ledger.append_events(
        lease,
        [*vetoes.events, *rebased.events],
        inside=inside,
        decided=len(vetoes.decisions),
    )
    # The next look has to see the requests as open again.
    lease.moved = True
    return session.head, Status.RUNNING


def _settlement_checkpoint(
    session: Session, step: StepResult, settled: Sequence[Settled], *, ends: bool
) -> NewCheckpoint:
    """Return the checkpoint of a settlement. A superstep that was in hand stays so,
    unless the run is over.
    """
    superstep = session.lease.superstep
    payload = _payload(session, step, superstep)
    if session.opened and not ends:
        payload = replace(payload, open=session.head.payload.open | payload.open)
    return NewCheckpoint(
        Source.SETTLEMENT,
        payload,
        superstep,
        step.changes,
        nodes=summary.gate_entries(settled),
        # While a superstep is in hand, the state lacks its writes.
        committed=ends or not session.in_hand,
        snapshot=session.graph.snapshot,
    )


def commit_rest(session: Session) -> bool:
    """Give the run back as it is, because nothing can start and nothing is settled. It
    writes no checkpoint, since nothing happened.

    Returns True, and does nothing, if a gate was settled since the last look.
    """
    frontier = session.frontier
    status = Status(ending(session.graph, frontier))
    place = summary.place_of(frontier, None, session.stopped_before(frontier))
    run_update = RunUpdate(status, place, session.lease.tape)

    def act() -> bool:
        if session.has_settled_gate() or session.has_more_to_ask:
            return True
        # That look may have read other requests, so the stops are looked up again.
        stopped = session.stopped_before(frontier)
        events = summary.status_events(status, frontier, stopped)
        inside: Callable[[], None] | None = None
        # Most runs have no policy, and their rest is one statement.
        if session.has_policies():
            inside = _end_of_windows(session)
        ledger.stop_run(session.lease, run_update, events=events, inside=inside)
        return False

    is_settled_since = retry_when_log_moved(session.lease, act)
    if status in ENDS and not is_settled_since:
        log_end(session.lease, status)
    return is_settled_since


def _end_of_windows(session: Session) -> Callable[[], None] | None:
    """Return what queues the jobs that end the windows of a run that comes to rest; None
    where none is open.
    """
    windows = session.with_unasked_policies()
    return partial(add_window_jobs, windows) if windows else None


def gates_to_ask(
    session: Session,
    context: SuperstepContext,
    results: Mapping[Task, FinishedTask],
    before: OpenSuperstep,
) -> dict[Task, ReachedGate]:
    """Return the gates that ask now: those of finished tasks whose requests are not
    open yet. `context` is what the tasks read. A replay asks nobody. Raises
    `InvalidValue` if the terms of a gate fail.
    """
    if session.replay is not None:
        return {}
    starts = {start.task: start for start in context.starts}
    reached: dict[Task, ReachedGate] = {}
    for task, result in results.items():
        if not result.gated or task in before.tasks_asked:
            continue
        if result.renews is not None:
            asked_again = renewals.renewed_gate(session, task, result)
            # A replay takes a rejection only where the task would see the same.
            input_hash = context.input_hash(starts[task])
            reached[task] = replace(asked_again, input_hash=input_hash)
            continue
        guard = result.guard or task.node
        gate = session.graph.nodes[guard].gate
        if gate:
            reached[task] = ReachedGate(
                gate_on_run(session.graph, gate, session.input),
                result.why,
                guard=guard,
                reads=result.reads,
                all_or_nothing=_is_all_or_nothing(session, task, result),
                input_hash=context.input_hash(starts[task]),
                # Only a row that stays in the timeline can be shown later.
                prepared_from=session.head.id if session.head.is_stored else None,
            )
    return reached


def _is_all_or_nothing(session: Session, task: Task, result: FinishedTask) -> bool:
    # A value that a person brought in is decided as a whole, like a patch.
    if result.guard is not None:
        return True
    channels = [write.channel for write in result.held(task)]
    return is_applied_as_one(session.graph, task.node, channels)


def _settled_memory(session: Session, step: StepResult, at: datetime) -> MemoryChanges:
    """Return what a settlement writes to memory. Raises `ConcurrentUpdate` if memory
    changed: the next look rebases the writes.
    """
    try:
        return _memory_changes(session, step, at=at)
    except MemoryConflict as conflict:
        raise ConcurrentUpdate from conflict


def _memory_changes(
    session: Session, step: StepResult, **options: Any
) -> MemoryChanges:
    """Return what a commit does to memory. What a replay remembers is in its checkpoint
    alone. Raises `MemoryConflict`.
    """
    if session.replay is not None:
        return execution_memory.NOTHING
    return execution_memory.check_landings(
        session.lease, session.graph, step.memory, **options
    )


def _state_reviewers_see(
    session: Session,
    step: StepResult,
    memory: MemoryChanges,
    held: Sequence[HeldWrite] = (),
) -> State:
    """Return the state after the step, with what memory then holds for the writes that
    gates hold.
    """
    if not (session.open_requests() or held):
        return step.state
    channels = [*session.memory_held, *execution_memory.held_channels([], held)]
    return execution_memory.memory_values(
        session.lease.protection, step.state, channels, memory.landings
    )


def _status(
    session: Session, frontier: Frontier, after: Planned, *, apart_from: Any = ()
) -> str:
    """Return the run's status on this frontier. `apart_from` are the requests that this
    commit settles.
    """
    if after.starts:
        return Status.RUNNING
    status = Status(ending(session.graph, frontier))
    if status != Status.PAUSED:
        return status
    if session.replay is not None:
        # The decisions of its origin are applied next.
        return Status.RUNNING
    session.reread_requests()
    # A gate that is settled already is applied next.
    for settled in session.settled_gates(frontier):
        if settled.request not in apart_from:
            return Status.RUNNING
    # A policy is asked about what waits, and after it the run may rest.
    if session.has_policies():
        return Status.RUNNING
    # Likewise with a gate that its deadline has closed: the run fails, or asks again.
    # What was begun is committed by now, and is no hindrance.
    return Status.RUNNING if session.expired else status


def _payload(
    session: Session,
    step: StepResult,
    supersteps: int,
    starts: Sequence[Start] = (),
    results: Mapping[Task, FinishedTask] = MappingProxyType({}),
) -> Payload:
    before = session.head.payload
    seq = session.head.next_seq
    run_times: list[tuple[str, int]] = []
    for start in starts:
        node = session.graph.nodes[start.task.node]
        result = results[start.task]
        # To prepare a call is no run of its node.
        if start.is_call or result.passed or node.approve != "call":
            run_times.append((node.name, result.ms))
    return Payload(
        step.state,
        diagnostics.after(before.diagnostics, run_times, supersteps=supersteps),
        step.frontier.to_json(),
        {**before.versions, **dict.fromkeys(step.changes, seq)},
        session.overlay_after(step.memory) if session.replay is not None else {},
    )


def _extra_writes(session: Session, beside: _RowsBeside) -> Callable[[], None] | None:
    """Return what writes the rows beside the checkpoint, in the commit's transaction;
    None if there are none.
    """
    if not (
        beside.opening.requests
        or beside.rebased.rows
        or beside.rebased.reopened
        or beside.memory
        or beside.not_needed.decisions
        or beside.noted
    ):
        return None
    commit = Commit(
        session.head.next_seq, session.lease.superstep + 1, datetime.now(UTC)
    )

    def inside() -> None:
        # Requests and writes before memory: the order of locks is the same everywhere.
        beside.opening.insert()
        beside.not_needed.insert()
        beside.rebased.insert()
        beside.memory.insert(session.lease, commit)
        beside.noted.insert()

    return inside


def _still_ours(session: Session, outcome: tuple[Head, str]) -> bool:
    head, status = outcome
    # The head stays if writes were only rebased, or if the commit before was made
    # again.
    if head is not session.head:
        session.advance_to(head)
    if status == Status.RUNNING:
        return True
    if status in ENDS:
        log_end(session.lease, status)
    return False
