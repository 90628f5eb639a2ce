"""Requests that a deadline has closed, in a runner's slice: with which of them the run
fails, and which it reopens. The log decides both, for the columns that say how a
request stands are not sealed.
"""

from collections.abc import Collection, Iterable, Sequence

from django.db.models import Q

from approvals.gates.request_state import RequestState
from approvals.gates.settlement import CLOSED, requests_of_tasks
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.status import Status
from checkpoints.models import RunEvent
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen

_OF_TASK = ("request_opened", "request_expired")

_GOING_ON = frozenset({Status.PAUSED.value, Status.QUEUED.value})
"""Statuses of a run that has not failed: a resume there has no deadline to forgive."""


@frozen
class ExpiredRequest:
    """A request that its deadline closed, and whether its run stopped and was resumed
    since then: people are asked again then. Otherwise the run fails with it.
    """

    request: ApprovalRequest
    asks_again: bool


def expired_requests(
    lease: Lease, tasks: Collection[Task], states: Sequence[RequestState]
) -> list[ExpiredRequest]:
    """Return the request of each of these waiting tasks that its deadline has closed and
    that has not asked again. `states` are the requests that wait. One query, none if
    each task has one of these, and one more if any has expired. Raises `TamperedRow`,
    `WrongKey`.
    """
    tasks_without_request = set(tasks) - {state.task for state in states}
    if not tasks_without_request:
        return []
    newest: dict[Task, ApprovalRequest] = {}
    # The last request of each of these tasks is closed: `waiting_requests` ensures
    # that.
    rows = requests_of_tasks(lease, tasks_without_request)
    for row in rows.filter(status__in=CLOSED):
        task = Task(row.node, row.visit, row.index)
        if task in tasks_without_request:
            newest[task] = row
    expired = [row for row in newest.values() if row.status == RequestStatus.EXPIRED]
    if not expired:
        return []
    sealed_rows.verify_rows(expired, lease.protection)
    events = _log_of(lease, {row.task for row in expired})
    return [_expired(row, events) for row in expired]


def _log_of(lease: Lease, tasks: Collection[str]) -> list[RunEvent]:
    """Return the lines of a run's log on its resumes, and on what these tasks asked. One
    query. Raises `TamperedRow`, `WrongKey`.
    """
    of_tasks = Q(task__in=tasks, type__in=_OF_TASK)
    rows = RunEvent.objects.filter(Q(type="run_resumed") | of_tasks, run=lease.id)
    events = list(rows.order_by("seq"))
    sealed_rows.verify_rows(events, lease.protection)
    return events


def _expired(row: ApprovalRequest, events: Iterable[RunEvent]) -> ExpiredRequest:
    """Return a request that says that its deadline closed it. Raises `TamperedRow`
    unless the log records that, and records nothing that the task asked later.
    """
    lets_fail = row.policy.get("on_deadline") == "fail" and row.deadline is not None
    is_closed = False
    asks_again = False
    for event in events if lets_fail else ():
        if event.type == "run_resumed":
            asks_again |= is_closed and _had_stopped(event)
        elif event.task != row.task:
            continue
        elif event.type == "request_expired":
            is_closed |= _is_about(event, row)
        elif is_closed:
            raise _tampered(
                row, "the log says that its task has asked again since then"
            )
    if not is_closed:
        raise _tampered(row, "no line of the log does")
    return ExpiredRequest(row, asks_again)


def _had_stopped(resumed: RunEvent) -> bool:
    """Return whether the run that was resumed had stopped. Whoever resumes one that has
    yet to fail forgives nothing.
    """
    facts = read_value(resumed, "payload") or {}
    return facts.get("was") not in _GOING_ON


def _is_about(event: RunEvent, row: ApprovalRequest) -> bool:
    facts = read_value(event, "payload") or {}
    return bool(facts.get("request") == str(row.id))


def _tampered(row: ApprovalRequest, reason: str) -> TamperedRow:
    name = sealed_rows.name_of(row)
    return TamperedRow(
        f"{name} says that its deadline closed it, but {reason}", row=name
    )
