"""What a worker does with one run: load, plan, execute, commit; until it is paused, done or out of time.

Called by the worker's task and by `runs.advance`. The live path and the recovery path are the same: whatever happened
before, a slice begins with the head, the journal and the gates, and goes on from there.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import structlog
from django.db import Error, IntegrityError, connection

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.event_log import Draft
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader as loading
from checkpoints.ledger.commit import Turn
from checkpoints.memory import read_records as recalling
from checkpoints.queue import leases
from checkpoints.queue.leases import Hold
from checkpoints.sealing import run_row as run_seal
from orchestrator.engine import Task, registry
from orchestrator.engine.errors import (
    CountersignError,
    MemoryConflict,
    PayloadsUnavailable,
    SaveFailed,
    StaleLease,
    TamperedRow,
    UnknownBackend,
    UnknownThing,
    WrongKey,
)
from orchestrator.engine.plan import Planned, check_limits, plan
from orchestrator.engine.reduce import reduce_step
from orchestrator.execution import cancellation as cancelling
from orchestrator.execution import commit as commits
from orchestrator.execution import failed_save as saving
from orchestrator.execution import open_superstep as opened
from orchestrator.execution import summary as shown
from orchestrator.execution.attempt import Setting
from orchestrator.execution.executor import Drained, Executor, Finish
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.open_superstep import Kept, Open
from orchestrator.execution.session import Desk, Worked, repeated
from orchestrator.execution.task_outcome import kept_of

log = structlog.get_logger(__name__)

STOP_PAUSE = 0.5
"""Seconds between two attempts to stop a run that could not be saved."""


def never() -> bool:
    """Nobody asks this process to drain."""
    return False


def work(run_id: UUID, epoch: int, *, worker: UUID | None = None, draining: Callable[[], bool] = never) -> None:
    """One slice of one run. Leaves quietly where the lease is not, or no longer, his."""
    hold = leases.begin(run_id, epoch, worker=worker)
    if hold is not None:
        work_on(hold, draining=draining)


def work_on(hold: Hold, *, draining: Callable[[], bool] = never) -> None:
    """One slice of a run that was begun."""
    try:
        with Heartbeat(hold) as heart:
            _slice(hold, heart, draining)
    except StaleLease:
        log.info("lease_lost", run=str(hold.id), epoch=hold.epoch)
    except (TamperedRow, WrongKey) as error:
        ledger.condemn(hold, opened.error_of(error) | {"cure": inspect.getdoc(type(error))})
    except Drained:
        leases.give_back(hold.id, hold.epoch, counts=False)
    except PayloadsUnavailable as error:
        log.warning("payloads_unavailable", run=str(hold.id), error=str(error))
        leases.give_back(hold.id, hold.epoch, counts=False, due_in=conf().lease_seconds)
    except UnknownBackend as error:
        _stop_at_last(hold, opened.error_of(error) | {"cure": inspect.getdoc(UnknownBackend)}, draining)
    except (SaveFailed, Error) as error:
        _not_saved(hold, error, draining)
    if hold.cancelling:
        _cancelled(hold)


def _cancelled(hold: Hold) -> None:
    try:
        cancelling.conclude(hold.id)
    except (TamperedRow, WrongKey) as error:
        # It is queued again by now, and the next worker would come no further.
        ledger.mark_tampered(hold.id, error)


def _not_saved(hold: Hold, error: Exception, draining: Callable[[], bool]) -> None:
    if isinstance(error, IntegrityError) and (found := _put_back(hold)):
        return ledger.condemn(hold, found)
    if saving.is_refusal(error):
        return _stop_at_last(hold, saving.error_of(error), draining)
    # A commit whose answer was lost may have happened. Only the rows know, so nothing is tried again from memory.
    log.warning("database_failed", run=str(hold.id), error=str(error))
    connection.close()
    leases.give_back(hold.id, hold.epoch)
    return None


def _put_back(hold: Hold) -> dict[str, Any] | None:
    """Why nothing can be written to this run, where its row was put back to an earlier state."""
    try:
        run_seal.require_last_line(hold.id)
    except TamperedRow as error:
        return opened.error_of(error) | {"cure": inspect.getdoc(TamperedRow)}
    return None


def _stop_at_last(hold: Hold, error: dict[str, Any], draining: Callable[[], bool]) -> None:
    """Nothing of the superstep was applied, and people must look: unknown where an effect may have happened, else
    failed. Where not even that can be written it is tried for the length of the lease; then the lease is left to run
    out.
    """
    until = time.monotonic() + conf().lease_seconds
    while True:
        try:
            lost = _lost(hold)
            _stop(hold, Status.UNKNOWN if lost else Status.FAILED, error, unknown=lost)
            return
        except StaleLease:
            log.info("lease_lost", run=str(hold.id), epoch=hold.epoch)
            return
        except Error as again:
            connection.close()
            if draining() or time.monotonic() + STOP_PAUSE > until:
                log.error("run_not_stopped", run=str(hold.id), error=str(again), because=error["message"])
                return
        time.sleep(STOP_PAUSE)


def _lost(hold: Hold) -> list[Task]:
    try:
        return opened.unsettled(registry.by_fingerprint(hold.fingerprint), journal.entries(hold))
    except UnknownThing:
        return []  # its tasks are unknown to this process, and stay as they are


def _slice(hold: Hold, heart: Heartbeat, draining: Callable[[], bool]) -> None:
    """Supersteps and settlements until the run rests, ends or stops, the worker drains, or time is up."""
    until = time.monotonic() + conf().slice_seconds
    if draining():
        raise Drained
    desk = _admitted(hold)
    if desk is None:
        has_it = hold.cancelling
    else:
        try:
            has_it = _turns(desk, heart, draining, until)
        finally:
            commits.land(desk)
    if has_it:
        leases.give_back(hold.id, hold.epoch)


def _turns(desk: Desk, heart: Heartbeat, draining: Callable[[], bool], until: float) -> bool:
    """Turns until somebody else is to have the run (True), or it is out of our hands."""
    while _turn(desk, heart, draining):
        if draining():
            raise Drained
        if desk.hold.cancelling or time.monotonic() > until:
            return True
    return desk.hold.cancelling


def _admitted(hold: Hold) -> Desk | None:
    """The run laid out for work; None where it is to be cancelled, or cannot be worked on here and was stopped."""
    # First of all: a new line and seal on a tampered run would cover up what happened to it.
    head, given = loading.load(hold), loading.input_of(hold)
    if hold.cancelling:
        return None
    try:
        graph = registry.by_fingerprint(hold.fingerprint)
    except UnknownThing:
        _stop(hold, Status.INCOMPATIBLE, opened.incompatible(hold))
        return None
    journaled = any(node.journaled for node in graph.nodes.values())
    entries = journal.in_hand(hold, head) if journaled else {}
    if hold.claims > conf().max_claims_without_progress:
        lost = opened.unsettled(graph, entries)
        message = f"{hold.claims - 1} workers began this run and got no further"
        _stop(hold, Status.UNKNOWN if lost else Status.FAILED, {"code": "poison", "message": message}, unknown=lost)
        return None
    return Desk(hold, graph, head, given, entries=entries)


def _stop(hold: Hold, status: str, error: dict[str, Any], *, unknown: Sequence[Task] = ()) -> None:
    turn = Turn(status, error=error, tape=hold.tape)
    lines = [Draft(f"run_{status}", {"code": error["code"], "message": error["message"]})]
    repeated(hold, lambda: ledger.stop(hold, turn, lines=lines, inside=lambda: journal.mark_unknown(hold, unknown)))


def _turn(desk: Desk, heart: Heartbeat, draining: Callable[[], bool]) -> bool:
    """One superstep or settlement. False: the run is out of our hands."""
    before = Open.from_json(desk.head.payload.open)
    try:
        # A superstep that failed, or was cut off after its first intent, is in hand until it commits.
        if not (before.superstep or desk.entries) and desk.settled():
            return commits.settle(desk)
        planned = desk.planned or plan(desk.graph, desk.frontier)
        if not planned.starts:
            return commits.rest(desk)
        check_limits(desk.graph, planned, desk.hold.superstep + 1)
        return _superstep(desk, planned, before, heart, draining)
    except (StaleLease, Drained, TamperedRow, WrongKey, SaveFailed):
        raise
    except CountersignError as error:
        return not commits.land(desk) or commits.fail(desk, opened.error_of(error))


class _Again(Exception):
    """Memory changed under some tasks: they run again, in the same superstep. `before` has what the others brought."""

    def __init__(self, before: Open) -> None:
        self.before = before


def _superstep(desk: Desk, planned: Planned, before: Open, heart: Heartbeat, draining: Callable[[], bool]) -> bool:
    while True:
        try:
            return _sitting(desk, planned, before, heart, draining)
        except _Again as again:
            before = again.before


def _sitting(desk: Desk, planned: Planned, before: Open, heart: Heartbeat, draining: Callable[[], bool]) -> bool:
    setting = Setting(desk.hold, desk.graph, desk.head.payload.state, desk.input, heart)
    todo = [start for start in planned.starts if start.task not in before.results]
    executor = Executor(desk.hold, desk.graph, setting, heart, draining)
    begun = time.monotonic()
    finishes = executor.run(todo, desk.entries, before.tries, before.due)
    desk.retried = [*desk.retried, *executor.retried]
    took_ms = int((time.monotonic() - begun) * 1000)
    kept = dict(before.results)
    for task, finish in finishes.items():
        found = kept_of(desk, task, finish)
        if found is not None:
            kept[task] = found
    left = {task: finish for task, finish in finishes.items() if task not in kept}
    if left:
        return _left_open(desk, planned, before, kept, left)
    return _complete(desk, planned, before, kept, finishes, took_ms=took_ms)


def _complete(
    desk: Desk,
    planned: Planned,
    before: Open,
    kept: dict[Task, Kept],
    finishes: dict[Task, Finish],
    *,
    took_ms: int,
) -> bool:
    asks = any(finish.asks_checkpoint for finish in finishes.values())
    try:
        results = {task: one.result() for task, one in kept.items()}
        step = reduce_step(desk.graph, planned, desk.head.payload.state, results)
    except CountersignError as error:
        return _left_open(desk, planned, before, kept, error=opened.error_of(error))
    try:
        return commits.advance(desk, Worked(planned, before, kept, step, asks, took_ms))
    except (StaleLease, TamperedRow, WrongKey, SaveFailed):
        raise
    except MemoryConflict as conflict:
        if not commits.land(desk):
            return True
        raise _Again(replace(before, results=_freed(desk, kept, conflict))) from conflict
    except CountersignError as error:
        # A gate that cannot be opened: its function for reviewers fails. What tasks returned is kept for the resume.
        return _left_open(desk, planned, before, kept, error=opened.error_of(error), ask=False)


def _left_open(
    desk: Desk,
    planned: Planned,
    before: Open,
    kept: dict[Task, Kept],
    left: Mapping[Task, Finish] | None = None,
    **how: Any,
) -> bool:
    """Leave the superstep open; a task that would be asked about a change of memory that is overtaken has no result."""
    if not commits.land(desk):
        return True
    while True:
        try:
            return commits.leave_open(desk, planned, before, kept, left or {}, **how)
        except MemoryConflict as conflict:
            kept = _freed(desk, kept, conflict)


def _freed(desk: Desk, kept: Mapping[Task, Kept], conflict: MemoryConflict) -> dict[Task, Kept]:
    """What is kept without the tasks of a conflict, which forget what they read. Raises `StaleLease`."""
    stale = [task for task in kept if str(task) in conflict.facts["tasks"]]
    error = {"type": "MemoryConflict", "message": conflict.message}
    lines = shown.unfinished([(one, Finish("later", error=error, attempt=kept[one].attempt)) for one in stale])
    hold = desk.hold
    repeated(hold, lambda: ledger.append(hold, lines, inside=lambda: recalling.forget(hold, stale)))
    return {task: one for task, one in kept.items() if task not in stale}
