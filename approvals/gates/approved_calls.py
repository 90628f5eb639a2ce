"""The calls that people approved and that have yet to run: their arguments exactly as
they were signed, and the state from which they were prepared. Reads only.

They are read again before each attempt to run them, so that what runs is what the
sealed rows say, whichever worker runs it.
"""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from approvals.gates.request_state import (
    RequestState,
    load_states,
    require_all_decisions,
)
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import lines, timeline
from checkpoints.models.fields import of_tasks
from checkpoints.queue.leases import Lease
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED

CALL_KIND = "call"
"""The kind of a request that asks about a call, before its node runs."""

State = dict[str, dict[str, Any]]


@frozen
class ApprovedCall:
    """The arguments of a call as people approved them, as canonical JSON, and the state
    that its node is given.
    """

    args: Any
    state: State


def approved_calls(lease: Lease, tasks: Collection[Task]) -> dict[Task, ApprovedCall]:
    """Return these approved calls of the current line. Six queries, and more for calls
    that were approved before the line began.

    Raises `TamperedRow` and `WrongKey` if a row is not as it was written, and
    `UnknownThing` if the state of a call is gone.
    """
    if not tasks:
        return {}
    # The remaining rows all verify, so only the count shows that one was deleted.
    require_all_decisions(lease.id, lease.decisions)
    return calls_of_line(lease.id, lease.line, tasks)


def calls_of_line(
    run: UUID, line: int, tasks: Collection[Task]
) -> dict[Task, ApprovedCall]:
    """Return these approved calls of any line, as `approved_calls` does."""
    states = _calls_on(run, line, tasks)
    missing = set(tasks) - set(states)
    if missing:
        # A line that departed after an approval goes on with it.
        for stretch in lines.past(run, line)[1:]:
            earlier = _calls_on(stretch.run, stretch.line, missing)
            states |= earlier
            missing -= set(earlier)
    return _as_approved(states, tasks)


def _calls_on(run: UUID, line: int, tasks: Iterable[Task]) -> dict[Task, RequestState]:
    """Return the applied requests about calls of these tasks on a line."""
    applied = ApprovalRequest.objects.filter(
        of_tasks(run, line, tasks), kind=CALL_KIND, status=RequestStatus.APPLIED
    )
    requests = list(applied.select_related("run").order_by("ordinal"))
    if not requests:
        return {}
    states = load_states(requests, protection_of(requests[0].run))
    return {state.task: state for state in states}


def _as_approved(
    states: dict[Task, RequestState], tasks: Collection[Task]
) -> dict[Task, ApprovedCall]:
    snapshots: dict[UUID, State] = {}
    calls: dict[Task, ApprovedCall] = {}
    for task in tasks:
        if task not in states:
            raise TamperedRow(
                f"{task} runs once its call is approved, and its request is gone",
                task=str(task),
            )
        request = states[task].request
        if states[task].outcome != APPROVED:
            # The status is not sealed, so the decisions have to bear it out.
            raise TamperedRow(
                f"the call of {task} is marked applied, and nobody approved it",
                request=str(request.id),
            )
        point = request.prepared_from
        if point is None:
            raise state_is_gone(task)
        if point not in snapshots:
            snapshots[point] = _state_at(point, task)
        args = read_value(states[task].writes[0], "value")
        calls[task] = ApprovedCall(args, snapshots[point])
    return calls


def _state_at(checkpoint: UUID, task: Task) -> State:
    row = timeline.read_checkpoint(checkpoint)
    if row is None:
        raise state_is_gone(task)
    document = timeline.snapshot_of(row)
    return {"scratch": document["scratch"], "artifacts": document["artifacts"]}


def state_is_gone(task: Task) -> UnknownThing:
    """Return the refusal of a call whose node cannot be given the state from which the
    call was prepared.
    """
    return UnknownThing(
        f"the checkpoint from which the call of {task} was prepared is gone, "
        "so it cannot run; fork the run from before it",
        task=str(task),
    )
