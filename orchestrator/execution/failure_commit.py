"""Commits of a superstep that could not end: the run fails, an outcome is unknown, or a task waits for its next try.

What finished is kept with a checkpoint of source `failure`, so that a resume runs only what has no result. The loop
calls this module; `commit` commits what went well.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from approvals.gates.new_requests import Moment, prepare_requests
from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import Head, NewCheckpoint, Payload, RunUpdate
from checkpoints.models.checkpoint import Source
from orchestrator.engine import Task
from orchestrator.execution import memory as execution_memory
from orchestrator.execution import summary
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.commit import gates_to_ask
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.notes import new_notes
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep, unsettled_tasks
from orchestrator.execution.session import Session, retry_when_log_moved
from orchestrator.execution.stop_log import log_stop


def commit_failure(session: Session, error: dict[str, Any]) -> bool:
    """Stop a run that failed outside its tasks (a limit, a router behind a gate): a failure checkpoint with nothing
    new. Unknown comes before failed: where an effect may have happened, that is to be settled first.
    """
    lease = session.lease
    lost = unsettled_tasks(session.graph, journal.entries(lease))
    status = Status.UNKNOWN if lost else Status.FAILED
    run_update = RunUpdate(status, str(error.get("node", "")), tape.extend(lease.tape, "!"), error=error)
    events = [NewEvent(f"run_{status}", {"code": error["code"], "message": error["message"]})]
    checkpoint = _failure(session, session.head.payload, [])

    mark = partial(journal.mark_tasks_unknown, lease, lost)

    def act() -> Head:
        return ledger.commit_superstep(lease, session.head, checkpoint, run_update, events=events, inside=mark)

    retry_when_log_moved(lease, act)
    log_stop(lease, status, error)
    return False


def _failure(session: Session, payload: Payload, nodes: list[dict[str, Any]]) -> NewCheckpoint:
    number, snapshot = session.lease.superstep, session.graph.snapshot
    return NewCheckpoint(Source.FAILURE, payload, number, nodes=nodes, committed=False, snapshot=snapshot)


def commit_open_superstep(
    session: Session,
    context: SuperstepContext,
    before: OpenSuperstep,
    kept: Mapping[Task, FinishedTask],
    left: Mapping[Task, TaskOutcome],
    *,
    error: dict[str, Any] | None = None,
    ask: bool = True,
) -> bool:
    """Commit a superstep that stays open: what finished is kept, human siblings are asked unless a gate cannot open."""
    lease, graph = session.lease, session.graph
    run_update = _stopped(session, left, error)
    reached = gates_to_ask(session, context, kept, before) if ask else {}
    held = [write for task in reached for write in kept[task].held(task)]
    later = left if run_update.status == Status.WAITING else {}
    open_ = _still_open(session, before, kept, later, asked=before.asked | set(reached))
    # Without an error nothing was tried: an attempt that was planned before is still to come.
    ended = [(task, one) for task, one in left.items() if one.error]
    unknown = [task for task, one in left.items() if one.outcome == "unknown"]

    def act() -> Head:
        payload, at = session.head.payload, datetime.now(UTC)
        seen = execution_memory.values_to_be_held(lease, graph, payload.state, held, at)
        opening = prepare_requests(
            lease,
            graph,
            reached,
            held,
            Moment(seen, lease.superstep, session.input, at, unsigned=session.who_chose_reviewers),
        )
        entries = summary.open_node_entries(graph, kept, left)
        checkpoint = _failure(session, replace(payload, open=open_.to_json() | session.overlay_after()), entries)
        tried = summary.unfinished_events([*session.retried, *ended])
        noted = new_notes(session, kept, at)
        events = [*tried, *opening.events, *noted.events, *summary.stop_events(run_update)]

        def inside() -> None:
            opening.insert()
            journal.mark_tasks_unknown(lease, unknown)
            journal.list_done_results(lease, session.head.next_seq)
            noted.insert()

        return ledger.commit_superstep(lease, session.head, checkpoint, run_update, events=events, inside=inside)

    retry_when_log_moved(lease, act)
    log_stop(lease, run_update.status, run_update.error or {})
    return False


def _still_open(
    session: Session,
    before: OpenSuperstep,
    kept: Mapping[Task, FinishedTask],
    later: Mapping[Task, TaskOutcome],
    *,
    asked: frozenset[Task],
) -> OpenSuperstep:
    """What is kept of the superstep, with when and after how many tries those go on that wait for a next attempt."""
    now = session.lease.now().timestamp()
    tries = {task: one.tries for task, one in later.items()}
    due = {task: now + one.due_in for task, one in later.items()}
    without = before.without if before.superstep else session.stops
    return OpenSuperstep(dict(kept), asked, tries, session.lease.superstep + 1, due, without)


def _stopped(session: Session, left: Mapping[Task, TaskOutcome], error: dict[str, Any] | None) -> RunUpdate:
    """What an open superstep makes of the run: unknown before failed before waiting."""
    tape_ = tape.extend(session.lease.tape, "!")
    at_node = ", ".join(sorted({task.node for task in left}))
    for outcome, status in (("unknown", Status.UNKNOWN), ("failed", Status.FAILED)):
        tasks = [task for task, one in left.items() if one.outcome == outcome]
        if tasks and not error:
            return RunUpdate(status, at_node, tape_, error=summary.stop_error(outcome, tasks[0], left[tasks[0]]))
    if error:
        return RunUpdate(Status.FAILED, at_node, tape_, error=error)
    return RunUpdate(Status.WAITING, at_node, session.lease.tape, due_in=min(one.due_in for one in left.values()))
