"""What a finished task means for its superstep: its writes flow, or a gate holds them, or its error takes an error
edge.
"""

from approvals.gates import guarded_channels as guarded
from orchestrator.engine import Task
from orchestrator.engine.gate import needs_approval
from orchestrator.engine.plan import ErrorInfo
from orchestrator.engine.reduce import Output
from orchestrator.execution.executor import Finish
from orchestrator.execution.open_superstep import Kept
from orchestrator.execution.secrets import writable
from orchestrator.execution.session import Desk


def kept_of(desk: Desk, task: Task, finish: Finish) -> Kept | None:
    """What is kept of a finish; None where the task has no result yet (failed, unknown, later)."""
    if finish.outcome == "done" and finish.output is not None:
        return _done(desk, task, finish, finish.output)
    if finish.outcome == "failed" and desk.graph.has_error_edge(task.node) and finish.error is not None:
        error = ErrorInfo(task.node, finish.error["type"], finish.error["message"], finish.attempt)
        return Kept(error=error, attempt=finish.attempt, ms=finish.ms)
    return None


def _done(desk: Desk, task: Task, finish: Finish, output: Output) -> Kept:
    node = desk.graph.nodes[task.node]
    guard = _guard(desk, output) if finish.settled else None
    if guard:
        reason = "a person gave this output when settling what happened"
        return Kept(output, gated=True, why=reason, guard=guard, attempt=finish.attempt, ms=finish.ms)
    if not node.gated or node.gate is None:
        return Kept(output, attempt=finish.attempt, ms=finish.ms)
    # The guard runs once; its answer is stored with the request, or with the decision "not needed".
    needed, why = needs_approval(
        node.gate, desk.graph.state_for(desk.head.payload.state), desk.graph.proposal(output.writes)
    )
    why = writable(why) if why else None
    return Kept(output, gated=needed, passed=not needed, why=why, attempt=finish.attempt, ms=finish.ms)


def _guard(desk: Desk, output: Output) -> str | None:
    """The node whose gate an output that a person gave must pass; settling has refused outputs with more than one."""
    found = guarded.guards(desk.hold.id, desk.hold.line, desk.graph, {write.channel for write in output.writes})
    return min(found, default=None)
