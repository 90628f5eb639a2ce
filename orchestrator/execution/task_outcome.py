"""What a finished task means for its superstep: its writes flow, a gate holds them, or it takes an error edge."""

from approvals.gates import guarded_channels
from orchestrator.engine import Task
from orchestrator.engine.plan import ErrorInfo
from orchestrator.engine.reduce import Output
from orchestrator.engine.requests import asks_people
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask
from orchestrator.execution.secrets import hide_secrets, writable
from orchestrator.execution.session import Session


def finished_task(session: Session, task: Task, finish: TaskOutcome) -> FinishedTask | None:
    """What is kept of a finish; None where the task has no result yet (failed, unknown, later)."""
    if finish.outcome == "done" and finish.output is not None:
        return _done(session, task, finish, finish.output)
    if finish.outcome == "failed" and session.graph.has_error_edge(task.node) and finish.error is not None:
        error = ErrorInfo(task.node, finish.error["type"], finish.error["message"], finish.attempt)
        return FinishedTask(error=error, attempt=finish.attempt, ms=finish.ms)
    return None


def _done(session: Session, task: Task, finish: TaskOutcome, output: Output) -> FinishedTask:
    node = session.graph.nodes[task.node]
    guard = _guard(session, output) if finish.settled else None
    if guard:
        reason = "a person gave this output when settling what happened"
        return FinishedTask(output, gated=True, why=reason, guard=guard, attempt=finish.attempt, ms=finish.ms, reads=())
    if not node.gated or node.gate is None:
        return FinishedTask(output, attempt=finish.attempt, ms=finish.ms)
    # The guard runs once; its answer is stored with the request, or with the decision "not needed".
    check = asks_people(session.graph, node.gate, session.head.payload.state, output)
    why = hide_secrets(writable(check.why)) if check.why else None
    # Nobody makes an approval unneeded by a value that he set himself.
    unsigned = "" if check.needed else session.unsigned_change(check.reads, decides="that no approval is needed")
    needed = check.needed or bool(unsigned)
    return FinishedTask(
        output,
        gated=needed,
        passed=not needed,
        why=unsigned or why,
        attempt=finish.attempt,
        ms=finish.ms,
        reads=check.reads,
    )


def _guard(session: Session, output: Output) -> str | None:
    """The node whose gate an output that a person gave must pass; settling has refused outputs with more than one."""
    lease, channels = session.lease, {write.channel for write in output.writes}
    return min(guarded_channels.guards(lease.id, lease.line, session.graph, channels), default=None)
