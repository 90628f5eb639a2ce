"""The calls of a superstep: which tasks run with arguments that are decided, and which
proposals passed their gate without people, so that they run in the superstep itself.

A call is a task of two passes. The first runs the node's `prepare`, whose result is
held as the one write of the channel `$call`; the visit waits like that of any gate.
Its settlement changes no channel: it marks the task as ready, and the planner starts
the same task (same visit, same index) once more, now with its arguments. So the
journal, the idempotency key and the recovery of the node are those of any other task,
and nothing of a proposal is kept twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from approvals.gates.approved_calls import (
    ApprovedCall,
    approved_calls,
    calls_of_line,
)
from checkpoints.models.task_result import Outcome
from orchestrator.engine import Task
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.plan import Start
from orchestrator.engine.step.reduce import Output, WriteValue
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.ops import same
from orchestrator.execution.attempt import Call, SuperstepContext
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.session import Session

_BEGUN = (Outcome.OPEN, Outcome.DONE, Outcome.UNKNOWN)


def decided_calls(
    session: Session, starts: Sequence[Start], before: OpenSuperstep
) -> dict[Task, Call]:
    """Return the calls of these tasks whose arguments are decided: those that people
    approved, and those that passed their gate while the superstep was open.

    Raises `TamperedRow` and `WrongKey` if an approval is not as it was written,
    `UnknownThing` if the state of a call is gone, and `InvalidValue` if this version of
    the graph reads other arguments.
    """
    # What has a result is not called again, and its state may be gone. Others were let
    # run by people who were asked again, and have no arguments.
    due: list[Task] = []
    for start in starts:
        calls_node = session.graph.nodes[start.task.node].calls
        if start.is_call and calls_node and start.task not in before.results:
            due.append(start.task)
    approved = _approved(session, due)
    calls: dict[Task, Call] = {}
    for task, call in approved.items():
        calls[task] = _fitted(session.graph, task, call)
    for task, args in passed_arguments(before).items():
        args = fitted_arguments(session.graph, task, args)
        calls[task] = Call(args, session.head.payload.state, waived=True)
    for task, finished in before.results.items():
        if finished.call is not None:
            state = session.head.payload.state
            calls[task] = Call(finished.call.value, state, waived=True)
    return calls


def passed_arguments(open_superstep: OpenSuperstep) -> dict[Task, Json]:
    """Return the arguments of the calls that passed their gate, and have no result."""
    arguments: dict[Task, Json] = {}
    for task, proposal in open_superstep.passed.items():
        if proposal.call is not None:
            arguments[task] = proposal.call.value
    return arguments


def _approved(session: Session, tasks: Collection[Task]) -> dict[Task, ApprovedCall]:
    if not tasks:
        return {}
    if session.replay is not None:
        # A replay has no requests: it goes by the decisions of its origin.
        origin = session.replay.origin
        return calls_of_line(origin.id, origin.line, tasks)
    return approved_calls(session.lease, tasks)


def _fitted(graph: Compiled, task: Task, call: ApprovedCall) -> Call:
    """Return an approved call as this version of the graph reads it. Raises
    `InvalidValue` if the arguments do not fit its type.
    """
    args = fitted_arguments(graph, task, call.args)
    # A channel that is new in this version has its default.
    state: dict[str, dict[str, Any]] = {}
    for part, fresh in graph.fresh_state().items():
        state[part] = {**fresh, **call.state[part]}
    return Call(args, state)


def fitted_arguments(graph: Compiled, task: Task, args: Json) -> Json:
    """Return the decided arguments of a call if this version of the graph reads the
    same. Raises `InvalidValue` if it does not.
    """
    if not graph.nodes[task.node].calls:
        raise InvalidValue(
            f"version {graph.version} asks nobody before {task} runs, and arguments "
            f"were approved for it; fork the run from before the approval",
            task=str(task),
        )
    read = graph.channel_of(task.node, CALL).stage(args, limit=None)
    # Validators are code: a newer one must not make other arguments of what was signed.
    if not same(read, args):
        raise InvalidValue(
            f"version {graph.version} reads other arguments from those that were "
            f"approved for {task}; fork the run from before the approval",
            task=str(task),
        )
    return read


def passed_calls(
    session: Session,
    context: SuperstepContext,
    results: Mapping[Task, FinishedTask],
) -> dict[Task, FinishedTask]:
    """Return the proposals among these results whose approval is waived, and add their
    calls to the context: they run in this superstep.
    """
    starts = {start.task: start for start in context.starts}
    passed: dict[Task, FinishedTask] = {}
    for task, finished in results.items():
        proposal = _proposed_call(finished)
        if proposal is None:
            continue
        state = session.head.payload.state
        call = Call(proposal.value, state, waived=True)
        if finished.passed or _has_begun(session, context, starts[task], call):
            context.calls[task] = call
            passed[task] = FinishedTask(
                passed=True, call=proposal, reads=finished.reads
            )
    return passed


def _proposed_call(finished: FinishedTask) -> WriteValue | None:
    """Return the proposal of a call that has not run."""
    if finished.output is None:
        return None
    for write in finished.output.writes:
        if write.channel == CALL:
            return write
    return None


def _has_begun(
    session: Session, context: SuperstepContext, start: Start, call: Call
) -> bool:
    """Return whether a call that people would be asked about now began before a crash:
    its gate needed nobody then, and that answer counts.
    """
    entry = session.entries.get(start.task)
    if entry is None:
        return False
    # Nothing happened, so other arguments than those may still be decided by people.
    if entry.outcome in (Outcome.NOT_DONE, Outcome.FAILED):
        return entry.input_hash == context.hash_of_call(start, call)
    return True


def begun_calls(
    session: Session, context: SuperstepContext, starts: Sequence[Start]
) -> list[Task]:
    """Return the tasks whose calls began before a crash, and whose `prepare` has brought
    no proposal now: what came of those calls is still to be learnt.
    """
    begun: list[Task] = []
    for start in starts:
        entry = session.entries.get(start.task)
        if entry is None or start.is_call or start.task in context.calls:
            continue
        if session.graph.nodes[start.task.node].calls and entry.outcome in _BEGUN:
            begun.append(start.task)
    return begun


def ended_call(proposal: FinishedTask, ended: FinishedTask) -> FinishedTask:
    """Return the result of a call that passed its gate without people, with what it was
    called with: the decision "not needed" is about that. If it has lost what it acts
    on, people decide about the call after all.
    """
    if ended.renews is not None and proposal.call is not None:
        return FinishedTask(
            Output((proposal.call,)), gated=True, why=ended.why, reads=proposal.reads
        )
    return replace(
        ended,
        passed=True,
        call=proposal.call,
        reads=proposal.reads,
    )
