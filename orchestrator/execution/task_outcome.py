"""The meaning of a finished task for its superstep: its writes flow, a gate holds them,
or it takes an error edge.
"""

from dataclasses import replace
from typing import Any

from approvals.authority import Loss
from approvals.gates import guarded_channels
from checkpoints.journal.results import Entry
from orchestrator.engine import Task
from orchestrator.engine.gates.requests import asks_people
from orchestrator.engine.graphs.call import AUTHORITY
from orchestrator.engine.step.plan import ErrorInfo
from orchestrator.engine.step.reduce import Output, WriteValue
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask
from orchestrator.execution.secrets import hide_secrets, writable
from orchestrator.execution.session import Session


def finished_task(
    session: Session, context: SuperstepContext, task: Task, outcome: TaskOutcome
) -> FinishedTask | None:
    """Return what is kept of a task that ended; None if it has no result yet (failed,
    unknown, later).
    """
    if outcome.outcome == "done" and outcome.output is not None:
        # An approval before the call is not asked for again after it.
        decided = task in context.calls
        return _finished_with_output(
            session, task, outcome, outcome.output, decided=decided
        )
    if (
        outcome.outcome == "failed"
        and session.graph.has_error_edge(task.node)
        and outcome.error is not None
    ):
        error = ErrorInfo(
            task.node, outcome.error["type"], outcome.error["message"], outcome.attempt
        )
        return FinishedTask(error=error, attempt=outcome.attempt, ms=outcome.ms)
    if outcome.loss is not None:
        return _held_by_loss(outcome.loss)
    return None


def made_call(session: Session, entry: Entry, why: str) -> FinishedTask:
    """Return a call that was made before a crash, by its recorded result, though no
    node prepares it now; `why` says so.
    """
    outcome = TaskOutcome(
        "done",
        output=Output.from_json(entry.output or {}),
        attempt=entry.attempt,
        ms=entry.took_ms,
        settled=entry.settled,
    )
    assert outcome.output is not None
    finished = _finished_with_output(
        session, entry.task, outcome, outcome.output, decided=True
    )
    # An output that a person gave may still have to pass another gate.
    if finished.gated:
        return finished
    return replace(finished, passed=True, why=hide_secrets(writable(why)))


def _held_by_loss(loss: Loss) -> FinishedTask:
    """Return a task about which people are asked again, before it begins: what it acts
    on no longer holds. They are shown what was applied.
    """
    writes: list[dict[str, Any]] = []
    renews: list[str] = []
    for through in loss.through:
        for write in through.writes:
            writes.append({"channel": write.channel, "value": write.value})
        if through.request is not None:
            renews.append(str(through.request.request.id))
    value = {"gate": loss.gate, "writes": writes}
    return FinishedTask(
        Output((WriteValue(AUTHORITY, value),)),
        gated=True,
        why=hide_secrets(writable(loss.why)),
        guard=loss.gate,
        reads=loss.reads,
        renews=renews[0] if renews else "",
    )


def _finished_with_output(
    session: Session,
    task: Task,
    outcome: TaskOutcome,
    output: Output,
    *,
    decided: bool,
) -> FinishedTask:
    # An output that a person gave when settling may have to pass another node's gate.
    guard = _guard_of_settled(session, output) if outcome.settled else None
    if guard:
        return FinishedTask(
            output,
            gated=True,
            why="a person gave this output when settling what happened",
            guard=guard,
            attempt=outcome.attempt,
            ms=outcome.ms,
            reads=(),
        )
    node = session.graph.nodes[task.node]
    if node.gate is None or not node.gated or decided:
        return FinishedTask(output, attempt=outcome.attempt, ms=outcome.ms)

    # The gate's check runs once; its answer is stored with the request, or with the
    # decision "not needed".
    check = asks_people(
        session.graph, task.node, node.gate, session.head.payload.state, output
    )
    needed = check.needed
    reason = hide_secrets(writable(check.why)) if check.why else None
    if not needed:
        # Nobody may make an approval unnecessary by a value that they set themselves.
        unsigned = session.unsigned_change(
            check.reads, decides="that no approval is needed"
        )
        needed = bool(unsigned)
        reason = unsigned or reason
    return FinishedTask(
        output,
        gated=needed,
        passed=not needed,
        why=reason,
        attempt=outcome.attempt,
        ms=outcome.ms,
        reads=check.reads,
    )


def _guard_of_settled(session: Session, output: Output) -> str | None:
    """Return the node whose gate an output that a person gave must pass. There is at
    most one, because settling refuses outputs with more.
    """
    lease = session.lease
    channels = {write.channel for write in output.writes}
    guards = guarded_channels.guards(lease.id, lease.line, session.graph, channels)
    return min(guards, default=None)
