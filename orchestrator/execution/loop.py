"""What a worker does with one run: load, plan, execute, commit; until it is paused, done or out of time.

Called by the worker's task and by `runs.advance`. The live path and the recovery path are the same: whatever happened
before, a slice begins with the head, the journal and the gates, and goes on from there.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import Error, IntegrityError, connection

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader, locked_run
from checkpoints.ledger.commit import Head, RunUpdate
from checkpoints.lines import NOT_STARTED, line_row
from checkpoints.memory import read_records
from checkpoints.models.run_line import Travel
from checkpoints.queue import leases
from checkpoints.queue.leases import Lease
from checkpoints.sealing import run_row
from orchestrator.discovery import judging_version
from orchestrator.engine import Task, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import (
    CountersignError,
    IncompatibleGraph,
    MemoryConflict,
    PayloadsUnavailable,
    SaveFailed,
    StaleLease,
    TamperedRow,
    UnknownBackend,
    WrongKey,
)
from orchestrator.engine.plan import Planned, Start, check_limits, plan
from orchestrator.engine.reduce import Settled, reduce_step
from orchestrator.execution import cancellation, commit, failed_save, failure_commit, open_superstep, summary
from orchestrator.execution.adoption import pin
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.executor import Draining, Executor, TaskOutcome
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.replay import Replay
from orchestrator.execution.session import Session, SuperstepResult, retry_when_log_moved
from orchestrator.execution.stop_log import log_stop
from orchestrator.execution.task_outcome import finished_task

log = structlog.get_logger(__name__)

STOP_PAUSE = 0.5
"""Seconds between two attempts to stop a run that could not be saved."""


def never() -> bool:
    """Nobody asks this process to drain."""
    return False


def run_slice(run_id: UUID, epoch: int, *, worker: UUID | None = None, draining: Callable[[], bool] = never) -> None:
    """Execute one slice of one run. Does nothing where this epoch does not, or no longer, hold the lease. Raises
    `OpenTransaction`.
    """
    refuse_open_transaction("run_slice")
    lease = leases.begin_lease(run_id, epoch, worker=worker)
    if lease is not None:
        run_begun_slice(lease, draining=draining)


def run_begun_slice(lease: Lease, *, draining: Callable[[], bool] = never) -> None:
    """One slice of a run that was begun. Raises `OpenTransaction`; the lease then runs out by itself."""
    refuse_open_transaction("run_begun_slice")
    try:
        with Heartbeat(lease) as heart:
            _slice(lease, heart, draining)
    except StaleLease:
        log.info("lease_lost", run=str(lease.id), epoch=lease.epoch)
    except (TamperedRow, WrongKey) as error:
        _stop_as_tampered(lease, open_superstep.error_json(error) | {"cure": inspect.getdoc(type(error))})
    except Draining:
        leases.give_back(lease.id, lease.epoch, counts=False)
    except PayloadsUnavailable as error:
        log.warning("payloads_unavailable", run=str(lease.id), error=str(error))
        leases.give_back(lease.id, lease.epoch, counts=False, due_in=conf().lease_seconds)
    except UnknownBackend as error:
        _stop_at_last(lease, open_superstep.error_json(error) | {"cure": inspect.getdoc(UnknownBackend)}, draining)
    except (SaveFailed, Error) as error:
        _not_saved(lease, error, draining)
    if lease.cancelling:
        _cancelled(lease)


def _cancelled(lease: Lease) -> None:
    try:
        cancellation.conclude_cancel(lease.id)
    except (TamperedRow, WrongKey) as error:
        # It is queued again by now, and the next worker would come no further.
        locked_run.mark_tampered(lease.id, error)


def _not_saved(lease: Lease, error: Exception, draining: Callable[[], bool]) -> None:
    if isinstance(error, IntegrityError) and (found := _put_back(lease)):
        return _stop_as_tampered(lease, found)
    if failed_save.is_refusal(error):
        return _stop_at_last(lease, failed_save.save_error(error), draining)
    # A commit whose answer was lost may have happened. Only the rows know, so nothing is tried again from memory.
    log.warning("database_failed", run=str(lease.id), error=str(error))
    connection.close()
    leases.give_back(lease.id, lease.epoch)
    return None


def _stop_as_tampered(lease: Lease, error: dict[str, Any]) -> None:
    ledger.stop_as_tampered(lease, error)
    log_stop(lease, Status.TAMPERED, error)


def _put_back(lease: Lease) -> dict[str, Any] | None:
    """Say why nothing can be written to this run, where its row was put back to an earlier state."""
    try:
        run_row.require_last_event(lease.id)
    except TamperedRow as error:
        return open_superstep.error_json(error) | {"cure": inspect.getdoc(TamperedRow)}
    return None


def _stop_at_last(lease: Lease, error: dict[str, Any], draining: Callable[[], bool]) -> None:
    """Nothing of the superstep was applied, and people must look: unknown where an effect may have happened, else
    failed. Where not even that can be written it is tried for the length of the lease; then the lease is left to run
    out.
    """
    until = time.monotonic() + conf().lease_seconds
    while True:
        try:
            # Without the graph its tasks are unknown to this process, and stay as they are.
            graph = registry.find_graph(lease.fingerprint)
            lost = open_superstep.unsettled_tasks(graph, journal.entries(lease)) if graph else []
            _stop(lease, Status.UNKNOWN if lost else Status.FAILED, error, unknown=lost)
            return
        except StaleLease:
            log.info("lease_lost", run=str(lease.id), epoch=lease.epoch)
            return
        except Error as again:
            connection.close()
            if draining() or time.monotonic() + STOP_PAUSE > until:
                log.error("run_not_stopped", run=str(lease.id), error=str(again), because=error["message"])
                return
        time.sleep(STOP_PAUSE)


def _slice(lease: Lease, heart: Heartbeat, draining: Callable[[], bool]) -> None:
    """Supersteps and settlements until the run rests, ends or stops, the worker drains, or time is up."""
    until = time.monotonic() + conf().slice_seconds
    if draining():
        raise Draining
    session = _open_session(lease)
    if session is None:
        has_it = lease.cancelling
    else:
        try:
            has_it = _turns(session, heart, draining, until)
        finally:
            commit.await_commit(session)
    if has_it:
        leases.give_back(lease.id, lease.epoch)


def _turns(session: Session, heart: Heartbeat, draining: Callable[[], bool], until: float) -> bool:
    """Take turns until the lease is to be given back (True), or is not ours any more."""
    while _turn(session, heart, draining):
        if draining():
            raise Draining
        if session.lease.cancelling or time.monotonic() > until:
            return True
    return session.lease.cancelling


def _open_session(lease: Lease) -> Session | None:
    """The run laid out for work; None where it is to be cancelled, or cannot be worked on here and was stopped or given
    back.
    """
    # First of all: a new line and seal on a tampered run would cover up what happened to it.
    head, given = head_loader.load_head(lease), head_loader.input_of(lease)
    if lease.cancelling:
        return None
    graph = registry.find_graph(lease.fingerprint)
    if graph is None:
        adopted = _adopted(lease, head, given)
        if adopted is None:
            return None
        graph, head = adopted
    journaled = any(node.journaled for node in graph.nodes.values())
    entries = journal.entries_for_takeover(lease, head) if journaled else {}
    if _is_poison(lease):
        _stop_as_poison(lease, open_superstep.unsettled_tasks(graph, entries))
        return None
    session = Session(lease, graph, head, given, entries=entries)
    # One query, none where nothing departed.
    row = line_row(lease, lease.line) if lease.departed else None
    if row is not None:
        session.stops = frozenset(graph.nodes if NOT_STARTED in row.stops else row.stops)
        session.replay = Replay(lease, graph, row) if row.travel == Travel.REPLAY else None
    return session


def _adopted(lease: Lease, head: Head, given: Any) -> tuple[Compiled, Head] | None:
    """The version with which a run goes on whose own is not here, and its head then; None where it was stopped or given
    back. Only who has the graph's newest version judges; others give the run back.
    """
    target = judging_version(lease.graph, lease.fingerprint)
    if target is None:
        leases.give_back(lease.id, lease.epoch, counts=False)
        return None
    if _is_poison(lease):
        # A migration may be what kills its process. Without the graph the run's tasks stay as they are.
        _stop_as_poison(lease, [])
        return None
    try:
        return target, pin.adopt_version(lease, head, given, target)
    except IncompatibleGraph as error:
        _stop(lease, Status.INCOMPATIBLE, open_superstep.incompatible_error(error))
        return None


def _is_poison(lease: Lease) -> bool:
    return lease.claims > conf().max_claims_without_progress


def _stop_as_poison(lease: Lease, lost: Sequence[Task]) -> None:
    message = f"{lease.claims - 1} workers began this run and got no further"
    _stop(lease, Status.UNKNOWN if lost else Status.FAILED, {"code": "poison", "message": message}, unknown=lost)


def _stop(lease: Lease, status: str, error: dict[str, Any], *, unknown: Sequence[Task] = ()) -> None:
    run_update = RunUpdate(status, error=error, tape=lease.tape)
    events = [NewEvent(f"run_{status}", {"code": error["code"], "message": error["message"]})]
    mark = partial(journal.mark_tasks_unknown, lease, unknown)
    retry_when_log_moved(lease, lambda: ledger.stop_run(lease, run_update, events=events, inside=mark))
    log_stop(lease, status, error)


def _turn(session: Session, heart: Heartbeat, draining: Callable[[], bool]) -> bool:
    """One superstep or settlement. False: the run is out of our hands."""
    before = OpenSuperstep.from_json(session.head.payload.open)
    try:
        settled = [] if session.in_hand else _replays(session, idle=False)
        if settled or session.has_settled_gate():
            return commit.commit_settlement(session, settled)
        planned = session.planned or _next_superstep(session, before)
        if not planned.starts:
            settled = _replays(session, idle=True)
            return commit.commit_settlement(session, settled) if settled else commit.commit_rest(session)
        check_limits(session.graph, planned, session.lease.superstep + 1)
        return _superstep(session, planned, before, heart, draining)
    except (StaleLease, Draining, TamperedRow, WrongKey, SaveFailed):
        raise
    except CountersignError as error:
        ours = commit.await_commit(session)
        return not ours or failure_commit.commit_failure(session, open_superstep.error_json(error))


def _replays(session: Session, *, idle: bool) -> list[Settled]:
    """The gates that a replay settles now, as its origin did."""
    replay = session.replay
    return replay.due(session.frontier, session.lease.superstep, idle=idle) if replay is not None else []


def _next_superstep(session: Session, before: OpenSuperstep) -> Planned:
    """What runs now. A superstep that is open has the tasks that it began with; none of them runs while a node of it
    waits for a yes: what finished in it is kept for the whole.
    """
    if not before.superstep:
        return session.plan_after(session.frontier)
    planned = plan(session.graph, session.frontier, stops=before.without)
    left = {start.task.node for start in planned.starts if start.task not in before.results}
    remembers = {task.node for task, one in before.results.items() if one.remembers}
    return Planned((), session.frontier) if (left | remembers) & session.stops else planned


def _recorded(session: Session, context: SuperstepContext, todo: Sequence[Start]) -> dict[Task, FinishedTask]:
    """Of a replay the tasks that do not run, with what was recorded of them; of any other run none."""
    replay = session.replay
    if replay is None:
        return {}
    replay.overlay = session.overlay_after().get("overlay", {})
    context.memory_of = replay.memory_of
    return replay.outcomes(context, todo)


class _Again(Exception):
    """Memory changed under some tasks: they run again, in the same superstep. `before` has what the others brought."""

    def __init__(self, before: OpenSuperstep) -> None:
        self.before = before


def _superstep(
    session: Session, planned: Planned, before: OpenSuperstep, heart: Heartbeat, draining: Callable[[], bool]
) -> bool:
    while True:
        try:
            return _run_tasks(session, planned, before, heart, draining)
        except _Again as again:
            before = again.before


def _run_tasks(
    session: Session, planned: Planned, before: OpenSuperstep, heart: Heartbeat, draining: Callable[[], bool]
) -> bool:
    state, starts = session.head.payload.state, planned.starts
    context = SuperstepContext(session.lease, session.graph, state, session.input, heart, starts)
    todo = [start for start in starts if start.task not in before.results]
    recorded = _recorded(session, context, todo)
    todo = [start for start in todo if start.task not in recorded]
    executor = Executor(session.lease, session.graph, context, heart, draining)
    begun = time.monotonic()
    finishes = executor.run(todo, session.entries, before.tries, before.due)
    session.retried = [*session.retried, *executor.retried]
    took_ms = int((time.monotonic() - begun) * 1000)
    kept = {**before.results, **recorded}
    for task, finish in finishes.items():
        found = finished_task(session, task, finish)
        if found is not None:
            kept[task] = found
    left = {task: finish for task, finish in finishes.items() if task not in kept}
    if left:
        return _left_open(session, context, before, kept, left)
    return _complete(session, context, planned, before, kept, finishes, took_ms=took_ms)


def _complete(
    session: Session,
    context: SuperstepContext,
    planned: Planned,
    before: OpenSuperstep,
    kept: dict[Task, FinishedTask],
    finishes: dict[Task, TaskOutcome],
    *,
    took_ms: int,
) -> bool:
    asks = any(finish.asks_checkpoint for finish in finishes.values())
    try:
        results = {task: one.result() for task, one in kept.items()}
        step = reduce_step(session.graph, planned, session.head.payload.state, results)
    except CountersignError as error:
        return _left_open(session, context, before, kept, error=open_superstep.error_json(error))
    try:
        return commit.commit_superstep(session, SuperstepResult(context, planned, before, kept, step, asks, took_ms))
    except (StaleLease, TamperedRow, WrongKey, SaveFailed):
        raise
    except MemoryConflict as conflict:
        if not commit.await_commit(session):
            return True
        raise _Again(replace(before, results=_without_conflicting(session, kept, conflict))) from conflict
    except CountersignError as error:
        # A gate that cannot be opened: its function for reviewers fails. What tasks returned is kept for the resume.
        return _left_open(session, context, before, kept, error=open_superstep.error_json(error), ask=False)


def _left_open(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    kept: dict[Task, FinishedTask],
    left: Mapping[Task, TaskOutcome] | None = None,
    **how: Any,
) -> bool:
    """Leave the superstep open; a task that would be asked about a change of memory that is overtaken has no result."""
    if not commit.await_commit(session):
        return True
    while True:
        try:
            return failure_commit.commit_open_superstep(session, context, before, kept, left or {}, **how)
        except MemoryConflict as conflict:
            kept = _without_conflicting(session, kept, conflict)


def _without_conflicting(
    session: Session, kept: Mapping[Task, FinishedTask], conflict: MemoryConflict
) -> dict[Task, FinishedTask]:
    """What is kept without the tasks of a conflict, which forget what they read. Raises `StaleLease`."""
    stale = [task for task in kept if str(task) in conflict.facts["tasks"]]
    error = {"type": "MemoryConflict", "message": conflict.message}
    tried = [(one, TaskOutcome("later", error=error, attempt=kept[one].attempt)) for one in stale]
    lease, events = session.lease, summary.unfinished_events(tried)
    forget = partial(read_records.delete_read_records, lease, stale)
    retry_when_log_moved(lease, lambda: ledger.append_events(lease, events, inside=forget))
    return {task: one for task, one in kept.items() if task not in stale}
