"""Commits of a superstep that could not end: the run fails, an outcome is unknown, or a
task waits for its next try.

Results are kept with a checkpoint of source `failure`, so that a resume runs only tasks
without a result. The loop calls this module; `commit` commits completed supersteps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from approvals.answers.windows import add_first_window_jobs, add_window_jobs
from approvals.gates.new_requests import Moment, NewRequests, prepare_requests
from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import Head, NewCheckpoint, Payload, RunUpdate
from checkpoints.models.checkpoint import Source
from checkpoints.models.task_result import Outcome
from orchestrator.engine import Task
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.execution import memory as execution_memory
from orchestrator.execution import summary
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.commit import gates_to_ask
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.notes import NewNotes, new_notes
from orchestrator.execution.open_superstep import (
    FinishedTask,
    OpenSuperstep,
    unsettled_tasks,
)
from orchestrator.execution.session import Session, retry_when_log_moved
from orchestrator.execution.stop_log import log_stop


def commit_failure(session: Session, error: dict[str, Any]) -> bool:
    """Stop a run that failed outside its tasks (a limit, a router after a gate), with a
    failure checkpoint that has nothing new. Unknown comes before failed: an effect that
    may have happened has to be settled first.
    """
    lease = session.lease
    unsettled = unsettled_tasks(session.graph, journal.entries(lease))
    status = Status.UNKNOWN if unsettled else Status.FAILED
    run_update = RunUpdate(
        status, str(error.get("node", "")), tape.extend(lease.tape, "!"), error=error
    )
    facts = {"code": error["code"], "message": error["message"]}
    events = [NewEvent(f"run_{status}", facts)]
    checkpoint = _failure(session, session.head.payload, [])
    mark_unknown = partial(journal.mark_tasks_unknown, lease, unsettled)

    def act() -> Head:
        return ledger.commit_superstep(
            lease,
            session.head,
            checkpoint,
            run_update,
            events=events,
            inside=mark_unknown,
        )

    retry_when_log_moved(lease, act)
    log_stop(lease, status, error)
    return False


def _failure(
    session: Session, payload: Payload, nodes: list[dict[str, Any]]
) -> NewCheckpoint:
    return NewCheckpoint(
        Source.FAILURE,
        payload,
        # The number of the last whole superstep: the state is as it was before the open
        # one.
        session.lease.superstep,
        nodes=nodes,
        committed=False,
        snapshot=session.graph.snapshot,
    )


def commit_open_superstep(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    results: Mapping[Task, FinishedTask],
    unfinished: Mapping[Task, TaskOutcome],
    *,
    error: dict[str, Any] | None = None,
    ask: bool = True,
) -> bool:
    """Commit a superstep that stays open: its results are kept, and people are asked
    about the tasks at gates, unless a gate cannot open. Returns False: the slice ends
    here.
    """
    lease = session.lease
    graph = session.graph
    run_update = _run_update(session, unfinished, error)
    reached = gates_to_ask(session, context, results, before) if ask else {}
    held: list[HeldWrite] = []
    for task in reached:
        held += results[task].held(task)
    # If the run stops for a person instead, the tries begin again when that person
    # acts.
    postponed = unfinished if run_update.status == Status.WAITING else {}
    tasks_asked = before.tasks_asked.union(reached)
    open_ = _still_open(session, before, results, postponed, tasks_asked)
    # A task without an error was not tried: an attempt that was planned before is still
    # to come.
    tried = [(task, outcome) for task, outcome in unfinished.items() if outcome.error]
    unknown = _with_outcome("unknown", unfinished)
    calls_made = _calls_made(session, unfinished)

    def act() -> Head:
        # The database's clock decides when windows end.
        at = lease.now()
        payload = session.head.payload
        state = execution_memory.values_to_be_held(
            lease, graph, payload.state, held, at
        )
        moment = Moment(
            state,
            lease.superstep,
            session.input,
            at,
            unsigned=session.unsigned_change,
        )
        opening = prepare_requests(lease, graph, reached, held, moment)
        checkpoint = _failure(
            session,
            replace(payload, open=open_.to_json() | session.overlay_after()),
            summary.open_node_entries(graph, results, unfinished),
        )
        noted = new_notes(session, results, at)
        events = [
            *summary.unfinished_events([*session.retried, *tried]),
            *opening.events,
            *noted.events,
            *summary.stop_events(run_update),
        ]
        end_windows = _end_of_windows(session, opening, run_update.status)

        def inside() -> None:
            _write_beside(session, opening, noted, unknown, calls_made)
            end_windows()

        return ledger.commit_superstep(
            lease, session.head, checkpoint, run_update, events=events, inside=inside
        )

    retry_when_log_moved(lease, act)
    log_stop(lease, run_update.status, run_update.error or {})
    return False


def _write_beside(
    session: Session,
    opening: NewRequests,
    noted: NewNotes,
    unknown: Sequence[Task],
    calls_made: Sequence[Task],
) -> None:
    """Write the rows that ride in the commit of a superstep that stays open."""
    opening.insert()
    journal.mark_tasks_unknown(session.lease, unknown)
    # Other attempts stay unlisted: their tasks still have to get a result.
    next_seq = session.head.next_seq
    journal.list_done_results(session.lease, next_seq, apart_from=calls_made)
    noted.insert()


def _end_of_windows(
    session: Session, opening: NewRequests, status: str
) -> Callable[[], None]:
    """Return what queues the jobs that end the windows of a run that waits for a retry,
    even of the requests that are opened: they may end long before it.
    """
    waiting = session.with_unasked_policies() if status == Status.WAITING else []
    opened = opening.requests if status == Status.WAITING else []

    def queue() -> None:
        add_window_jobs(waiting)
        add_first_window_jobs(opened)

    return queue


def _still_open(
    session: Session,
    before: OpenSuperstep,
    results: Mapping[Task, FinishedTask],
    postponed: Mapping[Task, TaskOutcome],
    tasks_asked: frozenset[Task],
) -> OpenSuperstep:
    """Return what is kept of the superstep, with the tries of the postponed tasks and
    when they are due.
    """
    # By the database's clock, because a worker on another host may make the next try.
    now = session.lease.now().timestamp()
    return OpenSuperstep(
        results=dict(results),
        tasks_asked=tasks_asked,
        tries={task: outcome.tries for task, outcome in postponed.items()},
        superstep=session.lease.superstep + 1,
        due={task: now + outcome.due_in for task, outcome in postponed.items()},
        # It goes on with the tasks with which it began, whatever gets a yes in the
        # meantime.
        without=before.without if before.superstep else session.stops,
        passed=before.passed,
    )


def _run_update(
    session: Session,
    unfinished: Mapping[Task, TaskOutcome],
    error: dict[str, Any] | None,
) -> RunUpdate:
    """Return what an open superstep makes of the run: unknown comes before failed, and
    failed before waiting.
    """
    stopped_tape = tape.extend(session.lease.tape, "!")
    at_node = ", ".join(sorted({task.node for task in unfinished}))
    if error:
        return RunUpdate(Status.FAILED, at_node, stopped_tape, error=error)
    for outcome, status in (("unknown", Status.UNKNOWN), ("failed", Status.FAILED)):
        tasks = _with_outcome(outcome, unfinished)
        if tasks:
            first = tasks[0]
            reason = summary.stop_error(outcome, first, unfinished[first])
            return RunUpdate(status, at_node, stopped_tape, error=reason)
    return RunUpdate(
        Status.WAITING,
        at_node,
        session.lease.tape,
        due_in=min(outcome.due_in for outcome in unfinished.values()),
    )


def _calls_made(session: Session, unfinished: Mapping[Task, TaskOutcome]) -> list[Task]:
    """Return the unfinished tasks whose calls were made before a crash. Their results
    are taken once the arguments are prepared again.
    """
    calls_made: list[Task] = []
    for task in unfinished:
        entry = session.entries.get(task)
        if entry is not None and entry.outcome == Outcome.DONE:
            calls_made.append(task)
    return calls_made


def _with_outcome(outcome: str, tasks: Mapping[Task, TaskOutcome]) -> list[Task]:
    return [task for task, ended in tasks.items() if ended.outcome == outcome]
