"""The loop of a slice: load a run, then plan, execute and commit supersteps until the
run pauses, ends or is out of time.

Called by the worker's task and by `runs.advance`. There is no separate recovery path:
whatever happened before, a slice starts from the head, the journal and the gates, and
continues from there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import Error, IntegrityError, connection

from approvals.authority import Judge
from checkpoints.conf import conf
from checkpoints.core import traces, work_sums
from checkpoints.core.status import Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.results import Entry
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader, locked_run
from checkpoints.ledger.commit import Head, RunUpdate
from checkpoints.lines import NOT_STARTED, line_row
from checkpoints.memory import read_records
from checkpoints.models.run_line import Travel
from checkpoints.models.task_result import Outcome
from checkpoints.queue import leases
from checkpoints.queue.leases import Lease
from checkpoints.sealing import run_row
from orchestrator.discovery import judging_version
from orchestrator.engine import Task, registry
from orchestrator.engine.errors import (
    CountersignError,
    IncompatibleGraph,
    MemoryConflict,
    OlderSeal,
    PayloadsUnavailable,
    SaveFailed,
    StaleLease,
    TamperedRow,
    UnknownBackend,
    WrongKey,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.plan import Planned, Start, check_limits, plan
from orchestrator.engine.step.reduce import Result, Settled, reduce_step
from orchestrator.execution import (
    calls,
    cancellation,
    commit,
    expired_gates,
    failed_save,
    failure_commit,
    open_superstep,
    policies,
    spans,
    summary,
)
from orchestrator.execution.adoption import pin
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.executor import (
    Draining,
    Executor,
    TaskOutcome,
    lost_outcome,
)
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.replay import Replay
from orchestrator.execution.session import (
    Session,
    SuperstepResult,
    retry_when_log_moved,
)
from orchestrator.execution.stop_log import log_stop
from orchestrator.execution.task_outcome import finished_task, made_call

log = structlog.get_logger(__name__)

STOP_PAUSE = 0.5
"""Seconds between two attempts to stop a run that could not be saved."""


def never() -> bool:
    """Return False: this process is never drained."""
    return False


def run_slice(
    run_id: UUID,
    epoch: int,
    *,
    worker: UUID | None = None,
    draining: Callable[[], bool] = never,
) -> None:
    """Execute one slice of one run. Does nothing if this epoch does not hold the lease,
    or no longer does. Raises `OpenTransaction`.
    """
    # An intent that the caller could still roll back would record nothing.
    refuse_open_transaction("run_slice")
    lease = leases.begin_lease(run_id, epoch, worker=worker)
    if lease is not None:
        run_begun_slice(lease, draining=draining)


def run_begun_slice(lease: Lease, *, draining: Callable[[], bool] = never) -> None:
    """Execute one slice of a run whose lease has begun. Raises `OpenTransaction`; the
    lease then simply runs out.
    """
    refuse_open_transaction("run_begun_slice")
    tracer = traces.tracer()
    if tracer is None:
        _run_slice(lease, draining)
        return
    with spans.slice_span(tracer, lease) as span:
        lease.tracer = tracer
        _run_slice(lease, draining)
        span.set_attribute("countersign.superstep", lease.superstep)


def _run_slice(lease: Lease, draining: Callable[[], bool]) -> None:
    try:
        with Heartbeat(lease) as heart:
            _slice(lease, heart, draining)
    except StaleLease:
        # The run belongs to another worker, so nothing about it is written here.
        work_sums.count("leases_lost")
        log.info("lease_lost", run=str(lease.id), epoch=lease.epoch)
    except OlderSeal:
        # Nothing is wrong with the run: it goes on when its rows were resealed.
        leases.give_back(lease.id, lease.epoch, counts=False)
        raise
    except (TamperedRow, WrongKey) as error:
        _stop_as_tampered(lease, _error_with_cure(error))
    except Draining:
        # A drain says nothing about the run, so the claim does not count towards
        # poison.
        leases.give_back(lease.id, lease.epoch, counts=False)
    except PayloadsUnavailable as error:
        log.warning("payloads_unavailable", run=str(lease.id), error=str(error))
        # The run is not at fault; it is due later, for the backend may stay away.
        leases.give_back(
            lease.id, lease.epoch, counts=False, due_in=conf().lease_seconds
        )
    except UnknownBackend as error:
        _stop_for_people(lease, _error_with_cure(error), draining)
    except (SaveFailed, Error) as error:
        _handle_failed_save(lease, error, draining)
    # Last, because a run is cancelled only when no worker holds it.
    if lease.cancelling:
        _conclude_cancel(lease)


def _error_with_cure(error: CountersignError) -> dict[str, Any]:
    cure = open_superstep.cure_of(type(error))
    return open_superstep.error_json(error) | {"cure": cure}


def _conclude_cancel(lease: Lease) -> None:
    try:
        cancellation.conclude_cancel(lease.id)
    except (TamperedRow, WrongKey) as error:
        # The run is queued again by now, and the next worker would get no further.
        locked_run.mark_tampered(lease.id, error)


def _handle_failed_save(
    lease: Lease, error: Exception, draining: Callable[[], bool]
) -> None:
    if isinstance(error, IntegrityError):
        # A run whose row was put back to an earlier state gives its next events numbers
        # that its log has already.
        put_back = _error_of_run_put_back(lease)
        if put_back is not None:
            _stop_as_tampered(lease, put_back)
            return
    if failed_save.is_refusal(error):
        _stop_for_people(lease, failed_save.save_error(error), draining)
        return
    # A commit whose answer was lost may have happened. Only the rows show that, so
    # nothing is retried from memory.
    log.warning("database_failed", run=str(lease.id), error=str(error))
    connection.close()
    leases.give_back(lease.id, lease.epoch)


def _stop_as_tampered(lease: Lease, error: dict[str, Any]) -> None:
    ledger.stop_as_tampered(lease, error)
    log_stop(lease, Status.TAMPERED, error)


def _error_of_run_put_back(lease: Lease) -> dict[str, Any] | None:
    """Return why nothing can be written to this run if its row was put back to an
    earlier state, else None.
    """
    try:
        run_row.require_last_event(lease.id)
    except TamperedRow as error:
        return _error_with_cure(error)
    return None


def _stop_for_people(
    lease: Lease, error: dict[str, Any], draining: Callable[[], bool]
) -> None:
    """Stop a run of whose superstep nothing was applied, so that people look at it:
    unknown if an effect may have happened, else failed.

    If not even that can be written, it is retried for the length of the lease; then the
    lease is left to run out.
    """
    deadline = time.monotonic() + conf().lease_seconds
    while True:
        try:
            _stop_with_unsettled_tasks(lease, error)
            return
        except StaleLease:
            log.info("lease_lost", run=str(lease.id), epoch=lease.epoch)
            return
        except Error as save_error:
            connection.close()
            if draining() or time.monotonic() + STOP_PAUSE > deadline:
                log.error(
                    "run_not_stopped",
                    run=str(lease.id),
                    error=str(save_error),
                    because=error["message"],
                )
                return
        time.sleep(STOP_PAUSE)


def _stop_with_unsettled_tasks(lease: Lease, error: dict[str, Any]) -> None:
    # Without the graph this process does not know the run's tasks, and leaves them as
    # they are.
    unsettled: list[Task] = []
    graph = registry.find_graph(lease.fingerprint)
    if graph:
        unsettled = open_superstep.unsettled_tasks(graph, journal.entries(lease))
    _stop(lease, _stopped_status(unsettled), error, unknown=unsettled)


def _stopped_status(unsettled: Sequence[Task]) -> Status:
    return Status.UNKNOWN if unsettled else Status.FAILED


def _slice(lease: Lease, heart: Heartbeat, draining: Callable[[], bool]) -> None:
    """Run supersteps and settlements until the run rests, ends or stops, the worker
    drains, or time is up.
    """
    deadline = time.monotonic() + conf().slice_seconds
    if draining():
        raise Draining
    session = _open_session(lease)
    if session is None:
        holds_lease = lease.cancelling
    else:
        try:
            holds_lease = _take_turns(session, heart, draining, deadline)
        finally:
            commit.await_commit(session)
    if holds_lease:
        leases.give_back(lease.id, lease.epoch)


def _take_turns(
    session: Session, heart: Heartbeat, draining: Callable[[], bool], deadline: float
) -> bool:
    """Take turns for as long as the slice lasts. Returns whether the slice still
    has the lease, which then has to be given back.
    """
    while _turn(session, heart, draining):
        if draining():
            raise Draining
        if session.lease.cancelling or time.monotonic() > deadline:
            return True
    return session.lease.cancelling


def _open_session(lease: Lease) -> Session | None:
    """Return the session in which this run is worked on; None if the run is to be
    cancelled, or cannot be worked on here and was stopped or given back.
    """
    # This comes first: a new line and seal on a tampered run would cover up what
    # happened to it.
    head = head_loader.load_head(lease)
    run_input = head_loader.input_of(lease)
    # The caller gives the lease back; then the run is cancelled.
    if lease.cancelling:
        return None

    graph = registry.find_graph(lease.fingerprint)
    if graph is None:
        adopted = _adopt_other_version(lease, head, run_input)
        if adopted is None:
            return None
        graph, head = adopted

    entries: dict[Task, Entry] = {}
    # Only journaled nodes have entries, so other graphs are spared the query.
    if graph.has_journaled:
        entries = journal.entries_for_takeover(lease, head)
    # After the journal was read, because a poisoned run with an open intent is unknown.
    if _is_poison(lease):
        _stop_as_poison(lease, open_superstep.unsettled_tasks(graph, entries))
        return None

    session = Session(lease, graph, head, run_input, entries=entries)
    # One query, and none if the run has no departures.
    if lease.departed:
        _apply_departure(session)
    return session


def _apply_departure(session: Session) -> None:
    """Set the stops and the replay of a line that departed from another."""
    lease = session.lease
    row = line_row(lease, lease.line)
    if row is None:
        return
    # A fork that was made paused starts none of its nodes before it is resumed.
    if NOT_STARTED in row.stops:
        session.stops = frozenset(session.graph.nodes)
    else:
        session.stops = frozenset(row.stops)
    if row.travel == Travel.REPLAY:
        session.replay = Replay(lease, session.graph, row)


def _adopt_other_version(
    lease: Lease, head: Head, run_input: Any
) -> tuple[Compiled, Head] | None:
    """Return the version with which the run continues, because its own is not
    registered here, and the run's new head; None if the run was stopped or given back.
    Only a process that has the graph's newest version judges; others give the run back.
    """
    target = judging_version(lease.graph, lease.fingerprint)
    if target is None:
        leases.give_back(lease.id, lease.epoch, counts=False)
        return None
    if _is_poison(lease):
        # A migration may be what kills its process. Without the graph the run's tasks
        # stay as they are.
        _stop_as_poison(lease, [])
        return None
    try:
        return target, pin.adopt_version(lease, head, run_input, target)
    except IncompatibleGraph as error:
        _stop(lease, Status.INCOMPATIBLE, open_superstep.incompatible_error(error))
        return None


def _is_poison(lease: Lease) -> bool:
    return lease.claims > conf().max_claims_without_progress


def _stop_as_poison(lease: Lease, unsettled: Sequence[Task]) -> None:
    # The count includes the claim in hand.
    message = f"{lease.claims - 1} workers began this run and got no further"
    error = {"code": "poison", "message": message}
    _stop(lease, _stopped_status(unsettled), error, unknown=unsettled)


def _stop(
    lease: Lease, status: str, error: dict[str, Any], *, unknown: Sequence[Task] = ()
) -> None:
    run_update = RunUpdate(status, error=error, tape=lease.tape)
    facts = {"code": error["code"], "message": error["message"]}
    events = [NewEvent(f"run_{status}", facts)]
    mark_unknown = partial(journal.mark_tasks_unknown, lease, unknown)

    def stop_run() -> None:
        ledger.stop_run(lease, run_update, events=events, inside=mark_unknown)

    retry_when_log_moved(lease, stop_run)
    log_stop(lease, status, error)


def _turn(session: Session, heart: Heartbeat, draining: Callable[[], bool]) -> bool:
    """Run one superstep or one settlement. Returns whether the slice still has the
    run.
    """
    before = OpenSuperstep.from_json(session.head.payload.open)
    try:
        # A replay asks nobody, so its gates settle when its origin's did.
        replayed: list[Settled] = []
        if session.replay is not None and not session.in_hand:
            replayed = _gates_a_replay_settles(session, session.replay, idle=False)
        # Settlements come before the next plan. Those that must wait for a superstep in
        # hand are not among the settled gates yet.
        if replayed or session.has_settled_gate():
            return commit.commit_settlement(session, heart, replayed)
        if session.has_more_to_ask:
            return _ask_more(session)
        planned = session.planned or _next_superstep(session, before)
        if not planned.starts:
            return _rest(session, heart)
        # A limit that is passed must fail the run before any task of the superstep
        # begins.
        check_limits(session.graph, planned, session.lease.superstep + 1)
        return _superstep(session, planned, before, heart, draining)
    except (StaleLease, Draining, TamperedRow, WrongKey, SaveFailed):
        # None of these is the graph's fault: `run_begun_slice` handles them.
        raise
    except CountersignError as error:
        return _fail(session, error)


def _fail(session: Session, error: CountersignError) -> bool:
    """Fail the run with this error. Returns whether the slice still has the run."""
    # The error may come from a head whose commit had to be made again; then the turn is
    # repeated on what stands.
    if not commit.await_commit(session):
        return True
    return failure_commit.commit_failure(session, open_superstep.error_json(error))


def _rest(session: Session, heart: Heartbeat) -> bool:
    """Commit that nothing can start; a replay first settles what only an idle run
    settles.
    """
    if session.replay is not None:
        replayed = _gates_a_replay_settles(session, session.replay, idle=True)
        if replayed:
            return commit.commit_settlement(session, heart, replayed)
    return commit.commit_rest(session)


def _ask_more(session: Session) -> bool:
    """Fail the run because of what a deadline has closed, or ask again; else ask the
    automatic policies of gates.
    """
    if session.has_expired:
        return expired_gates.fail_or_ask_again(session)
    return policies.ask_policies(session)


def _gates_a_replay_settles(
    session: Session, replay: Replay, *, idle: bool
) -> list[Settled]:
    """Return the gates that a replay settles now, as its origin did."""
    return replay.due(session.frontier, session.lease.superstep, idle=idle)


def _next_superstep(session: Session, before: OpenSuperstep) -> Planned:
    """Return what runs now. An open superstep has the tasks with which it began; none
    of them runs while one of its nodes waits for a yes: what finished in it is kept for
    the whole superstep.
    """
    if not before.superstep:
        return session.plan_after(session.frontier)
    # With the stops of that time: it goes on with the tasks with which it began,
    # whatever has a yes by now.
    planned = plan(session.graph, session.frontier, stops=before.without)
    unfinished = {
        start.task.node for start in planned.starts if start.task not in before.results
    }
    remembering = {
        task.node for task, finished in before.results.items() if finished.remembers
    }
    # A kept result that is about to land in memory is an effect too, and may lack its
    # yes.
    if (unfinished | remembering) & session.stops:
        return Planned((), session.frontier)
    return planned


def _recorded_results(
    session: Session,
    replay: Replay,
    context: SuperstepContext,
    todo: Sequence[Start],
) -> dict[Task, FinishedTask]:
    """Return the tasks that a replay does not run, with their recorded results."""
    # What a replay remembers is in its checkpoints alone, and its tasks must find it.
    replay.overlay = session.overlay_after().get("overlay", {})
    context.memory_of = replay.memory_of
    return replay.outcomes(context, todo)


class _TasksRunAgain(Exception):
    """Memory changed under some tasks, which run again in the same superstep. `before`
    holds the results of the others.
    """

    def __init__(self, before: OpenSuperstep) -> None:
        self.before = before


def _superstep(
    session: Session,
    planned: Planned,
    before: OpenSuperstep,
    heart: Heartbeat,
    draining: Callable[[], bool],
) -> bool:
    while True:
        try:
            if session.lease.tracer is None:
                return _run_tasks(session, planned, before, heart, draining)
            with spans.superstep_span(session.lease.tracer, session.lease):
                return _run_tasks(session, planned, before, heart, draining)
        except _TasksRunAgain as conflict:
            before = conflict.before


def _run_tasks(
    session: Session,
    planned: Planned,
    before: OpenSuperstep,
    heart: Heartbeat,
    draining: Callable[[], bool],
) -> bool:
    context = SuperstepContext(
        session.lease,
        session.graph,
        session.head.payload.state,
        session.input,
        heart,
        planned.starts,
        cancelled=session.cancelled,
    )
    if session.lease.tracer is not None:
        context.trace = (session.lease.tracer, traces.here())
    # Only what acts needs an authority to act on.
    if session.graph.has_journaled:
        context.judge = Judge(session.graph, context.state, session.who_let_act)
    if session.graph.has_calls:
        context.calls = calls.decided_calls(session, planned.starts, before)
    # Neither what an earlier attempt at this superstep finished nor what a replay has
    # recorded runs again.
    todo = _without(before.results, planned.starts)
    recorded: dict[Task, FinishedTask] = {}
    if session.replay is not None:
        recorded = _recorded_results(session, session.replay, context, todo)
        todo = _without(recorded, todo)

    begun = time.monotonic()
    ended = _execute(session, context, before, todo, draining)
    if session.graph.has_calls:
        before, ended = _call(session, context, before, todo, ended, draining)
    took = time.monotonic() - begun
    if work_sums.installed is not None:
        work_sums.installed.add_superstep(took)

    results = {**before.results, **recorded, **ended.results}
    if ended.unfinished:
        return _leave_open(session, context, before, results, ended.unfinished)
    return _complete(
        session,
        context,
        planned,
        before,
        results,
        asks_checkpoint=ended.asks_checkpoint,
        took_ms=int(took * 1000),
    )


def _without(
    results: Mapping[Task, FinishedTask], starts: Sequence[Start]
) -> Sequence[Start]:
    """Return the starts whose tasks have no result yet."""
    if not results:
        return starts
    return [start for start in starts if start.task not in results]


@frozen
class _Ended:
    """How tasks of a superstep ended: those with a result, and those without."""

    results: dict[Task, FinishedTask]
    unfinished: dict[Task, TaskOutcome]
    asks_checkpoint: bool

    def followed_by(self, later: "_Ended") -> "_Ended":
        """Return how all ended, when some of the tasks went on to call their nodes."""
        results = {**self.results, **later.results}
        for task in later.unfinished:
            results.pop(task, None)
        return _Ended(
            results,
            {**self.unfinished, **later.unfinished},
            self.asks_checkpoint or later.asks_checkpoint,
        )


def _call(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    todo: Sequence[Start],
    ended: _Ended,
    draining: Callable[[], bool],
) -> tuple[OpenSuperstep, _Ended]:
    """Run the calls that were prepared and need nobody, in this very superstep. Returns
    how all tasks ended, and `before` with the calls that passed and have no result.
    """
    proposals = calls.passed_calls(session, context, ended.results)
    _end_begun_calls(session, ended, calls.begun_calls(session, context, todo))
    if proposals and draining():
        raise Draining
    if proposals:
        run_now = [start for start in todo if start.task in proposals]
        called = _execute(session, context, before, run_now, draining)
        ended = ended.followed_by(called)
    # The answer of a gate that needed nobody is kept until its call has a result.
    waiting: dict[Task, FinishedTask] = {}
    for task, proposal in {**before.passed, **proposals}.items():
        if task in ended.results:
            ended.results[task] = calls.ended_call(proposal, ended.results[task])
        elif task not in before.results:
            waiting[task] = proposal
    return replace(before, passed=waiting), ended


def _end_begun_calls(session: Session, ended: _Ended, begun: Sequence[Task]) -> None:
    """Settle calls that began before a crash and were not proposed again: they end as
    the journal says, are unknown if they may have happened, and fail otherwise. That is
    no error of their nodes, whose edges for errors would act beside what may have
    happened.
    """
    unsettled = open_superstep.unsettled_tasks(session.graph, session.entries)
    for task in begun:
        entry = session.entries[task]
        finished = ended.results.pop(task, None)
        if entry.outcome == Outcome.DONE:
            # What was done stays done, whether or not it could be prepared again.
            failed = ended.unfinished.pop(task, None)
            why = _why_unprepared(task, failed, finished)
            ended.results[task] = made_call(session, entry, why)
        elif task in unsettled:
            ended.unfinished[task] = lost_outcome(entry)
        elif finished is not None and finished.error is not None:
            error = {"type": finished.error.type, "message": finished.error.message}
            ended.unfinished[task] = TaskOutcome(
                "failed", error=error, attempt=finished.attempt
            )


def _why_unprepared(
    task: Task, failed: TaskOutcome | None, finished: FinishedTask | None
) -> str:
    """Return the warning about a call that was made, and that nothing prepares now."""
    message = ""
    if failed is not None and failed.error is not None:
        message = f": {failed.error['message']}"
    elif finished is not None and finished.error is not None:
        message = f": {finished.error.message}"
    return (
        f"{task} was made before a crash, and its recorded result counts; preparing it "
        f"fails now, so it is not known any more with what it was made{message}"
    )


def _execute(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    starts: Sequence[Start],
    draining: Callable[[], bool],
) -> _Ended:
    executor = Executor(session.lease, session.graph, context, context.heart, draining)
    outcomes = executor.run(starts, session.entries, before.tries, before.due)
    session.retried = [*session.retried, *executor.retried]
    results: dict[Task, FinishedTask] = {}
    unfinished: dict[Task, TaskOutcome] = {}
    asks_checkpoint = False
    for task, outcome in outcomes.items():
        asks_checkpoint = asks_checkpoint or outcome.asks_checkpoint
        finished = finished_task(session, context, task, outcome)
        if finished is not None:
            results[task] = finished
        else:
            unfinished[task] = outcome
    return _Ended(results, unfinished, asks_checkpoint)


def _complete(
    session: Session,
    context: SuperstepContext,
    planned: Planned,
    before: OpenSuperstep,
    results: dict[Task, FinishedTask],
    *,
    asks_checkpoint: bool,
    took_ms: int,
) -> bool:
    """Reduce and commit a superstep all of whose tasks have a result."""
    state = session.head.payload.state
    ended: dict[Task, Result] = {}
    for task, finished in results.items():
        ended[task] = finished.result()
    try:
        step = reduce_step(session.graph, planned, state, ended)
    except CountersignError as error:
        return _leave_open(
            session, context, before, results, error=open_superstep.error_json(error)
        )
    worked = SuperstepResult(
        context, planned, before, results, step, asks_checkpoint, took_ms
    )
    try:
        return commit.commit_superstep(session, worked)
    except (StaleLease, TamperedRow, WrongKey, SaveFailed):
        raise
    except MemoryConflict as conflict:
        if not commit.await_commit(session):
            return True
        remaining = _without_conflicting(session, results, conflict)
        raise _TasksRunAgain(replace(before, results=remaining)) from conflict
    except CountersignError as error:
        # A gate cannot be opened because its function for reviewers fails. The results
        # of the tasks are kept for the resume.
        return _leave_open(
            session,
            context,
            before,
            results,
            error=open_superstep.error_json(error),
            ask=False,
        )


def _leave_open(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    results: dict[Task, FinishedTask],
    unfinished: Mapping[Task, TaskOutcome] | None = None,
    **options: Any,
) -> bool:
    """Leave the superstep open. A task whose change of memory waits for people loses
    its result if that change was overtaken.
    """
    if not commit.await_commit(session):
        return True
    while True:
        try:
            return failure_commit.commit_open_superstep(
                session, context, before, results, unfinished or {}, **options
            )
        except MemoryConflict as conflict:
            # Each conflict takes at least one result away, so this comes to an end.
            results = _without_conflicting(session, results, conflict)


def _without_conflicting(
    session: Session, results: Mapping[Task, FinishedTask], conflict: MemoryConflict
) -> dict[Task, FinishedTask]:
    """Return the results without those of conflicting tasks, which forget what they
    read. Raises `StaleLease`.
    """
    lease = session.lease
    stale = [task for task in results if str(task) in conflict.facts["tasks"]]
    error = {"type": "MemoryConflict", "message": conflict.message}
    postponed: list[tuple[Task, TaskOutcome]] = []
    for task in stale:
        attempt = results[task].attempt
        postponed.append((task, TaskOutcome("later", error=error, attempt=attempt)))
    events = summary.unfinished_events(postponed)
    # The next attempt would be given the recorded reads and meet the same conflict.
    forget_reads = partial(read_records.delete_read_records, lease, stale)

    def append() -> None:
        ledger.append_events(lease, events, inside=forget_reads)

    retry_when_log_moved(lease, append)
    return {task: done for task, done in results.items() if task not in stale}
