"""Requests that a deadline has closed, in a runner's slice: with which of them the run
fails, and which it opens anew. The log decides both, for the columns that say how a
request stands are not sealed.
"""

from collections.abc import Collection, Sequence

from django.db.models import Q

from approvals.gates.request_state import RequestState
from approvals.gates.settlement import CLOSED, requests_of_tasks
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import RunEvent
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen

_OF_TASK = ("request_opened", "request_expired")


@frozen
class ExpiredRequest:
    """A request that its deadline closed, and whether its run goes on since then: people
    are asked anew then. Otherwise the run fails with it.
    """

    request: ApprovalRequest
    asks_again: bool


def expired_requests(
    lease: Lease, tasks: Collection[Task], states: Sequence[RequestState]
) -> list[ExpiredRequest]:
    """Return the request of each of these waiting tasks that its deadline has closed and
    that has not asked again. `states` are the requests that wait. One query, none if
    each task has one of these, and one more for each that has expired. Raises
    `TamperedRow`, `WrongKey`.
    """
    tasks_without_request = set(tasks) - {state.task for state in states}
    if not tasks_without_request:
        return []
    newest: dict[Task, ApprovalRequest] = {}
    # What each of these tasks asked last is closed: `waiting_requests` makes sure.
    rows = requests_of_tasks(lease, tasks_without_request)
    for row in rows.filter(status__in=CLOSED):
        task = Task(row.node, row.visit, row.index)
        if task in tasks_without_request:
            newest[task] = row
    expired = [row for row in newest.values() if row.status == RequestStatus.EXPIRED]
    sealed_rows.verify_rows(expired, lease.protection)
    return [_expired(row, lease) for row in expired]


def _expired(row: ApprovalRequest, lease: Lease) -> ExpiredRequest:
    """Return a request that says that its deadline closed it. Raises `TamperedRow`
    unless the log records that, and records nothing that the task asked later.
    """
    lets_fail = row.policy.get("on_deadline") == "fail" and row.deadline is not None
    of_task = Q(task=row.task, type__in=_OF_TASK)
    events = RunEvent.objects.filter(
        Q(type="run_resumed") | of_task, run=lease.id
    ).order_by("seq")
    is_closed = False
    asks_again = False
    for event in events if lets_fail else ():
        sealed_rows.verify_row(event, lease.protection)
        if event.type == "run_resumed":
            asks_again = is_closed
            continue
        facts = read_value(event, "payload") or {}
        is_of_row = facts.get("request") == str(row.id)
        if event.type == "request_expired":
            is_closed = is_closed or is_of_row
        elif is_closed:
            raise _tampered(
                row, "the log says that its task has asked again since then"
            )
    if not is_closed:
        raise _tampered(row, "no line of the log does")
    return ExpiredRequest(row, asks_again)


def _tampered(row: ApprovalRequest, reason: str) -> TamperedRow:
    name = sealed_rows.name_of(row)
    return TamperedRow(
        f"{name} says that its deadline closed it, but {reason}", row=name
    )
