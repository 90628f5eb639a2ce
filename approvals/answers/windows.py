"""The writes about which policies were not asked yet, the ends of the windows in which
people may decide first, and the job that wakes a run at such an end.

The job is written in the transaction in which the run comes to rest, or waits for a
retry, so that no worker that dies leaves a window without its end. A job that is queued
for a later moment puts the end off: people get time after a restore, and after a stop
during which nothing could be decided.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from approvals.gates.deadline_jobs import (
    WINDOW_KIND,
    due_by_request,
    requests_in_queue,
)
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite
from checkpoints.queue import jobs, notify
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.auto import window_by, window_end
from orchestrator.engine.graphs.standing_policy import signs_by_itself

KIND = WINDOW_KIND
"""The kind of the jobs. Their fact `request` is the id of the request."""
WINDOWED = Q(policy__has_key="auto_after")
"""The condition of requests whose policies wait for people."""
AT_ONCE = datetime.min.replace(tzinfo=UTC)
"""The moment at which a policy without a window is asked."""


@frozen
class Asking:
    """When the policies of a request are to be asked at the earliest."""

    state: RequestState
    moment: datetime


def unasked_writes(state: RequestState) -> list[PendingWrite]:
    """Return the open writes of a request whose present revision no policy was asked
    about; none if the request was opened without policies.
    """
    request = state.request
    if not signs_by_itself(request.policy) or request.status != RequestStatus.OPEN:
        return []
    answered: set[tuple[object, int]] = set()
    for row in (*state.decisions, *state.answers):
        if row.by_policy:
            answered.add((row.write, row.revision))
    unasked: list[PendingWrite] = []
    for write in state.writes:
        standing = state.standings[write.write]
        if standing.settled:
            continue
        if (write.write, write.revision) not in answered:
            unasked.append(write)
    return unasked


def end_of_window(state: RequestState, row: PendingWrite) -> datetime | None:
    """Return when a policy may sign this revision at the earliest; None for at once."""
    return window_end(state.request.policy, row.staged_at)


def due_writes(state: RequestState, now: datetime) -> list[PendingWrite]:
    """Return those of the `unasked_writes` whose windows are over by this moment."""
    due: list[PendingWrite] = []
    for row in unasked_writes(state):
        end = end_of_window(state, row)
        if end is None or end <= now:
            due.append(row)
    return due


def askings(states: Sequence[RequestState]) -> list[Asking]:
    """Return when the policies of these requests of one run, each with `unasked_writes`,
    are to be asked: at the first end of their windows, or when the job is due that puts
    it off. One query where one of them has a window.
    """
    due: dict[str, datetime] = {}
    if any(window_by(state.request.policy) for state in states):
        due = due_by_request(KIND, states[0].request.run_id)
    planned: list[Asking] = []
    for state in states:
        ends = [end_of_window(state, row) or AT_ONCE for row in unasked_writes(state)]
        put_off = due.get(str(state.request.id), AT_ONCE)
        moment = max(min(ends), put_off)
        planned.append(Asking(state, moment))
    return planned


def put_off_windows(run_id: UUID, *, earliest: datetime) -> None:
    """Postpone the windows of a locked run that would end before `earliest`: every job
    of one ends, even if it is paused, and each open request with a window gets a job
    that is due then.
    """
    jobs.cancel_jobs_of(run_id, kind=KIND)
    windowed = ApprovalRequest.objects.filter(
        WINDOWED, run=run_id, status=RequestStatus.OPEN
    )
    added: list[jobs.RunJob] = []
    for request in windowed.values_list("id", flat=True):
        added.append(jobs.RunJob(run_id, earliest, {"request": str(request)}))
    jobs.add_run_jobs(KIND, added)


def add_window_jobs(states: Sequence[RequestState]) -> None:
    """Queue a job for the next end of a window in each of these requests of one run that
    has none, in the caller's transaction. One query, one statement more for new jobs.
    """
    if not states:
        return
    run_id = states[0].request.run_id
    with_job = requests_in_queue(KIND, run_id)
    added: list[jobs.RunJob] = []
    for state in states:
        request = str(state.request.id)
        ends = [end_of_window(state, row) for row in unasked_writes(state)]
        moments = [end for end in ends if end is not None]
        if moments and request not in with_job:
            added.append(jobs.RunJob(run_id, min(moments), {"request": request}))
    jobs.add_run_jobs(KIND, added)


def add_first_window_jobs(requests: Sequence[ApprovalRequest]) -> None:
    """Queue a job for the end of the window of each of these requests that has one, in
    the caller's transaction, which opens them.
    """
    added: list[jobs.RunJob] = []
    for request in requests:
        end = window_end(request.policy, request.opened_at)
        if end is not None:
            facts = {"request": str(request.id)}
            added.append(jobs.RunJob(request.run_id, end, facts))
    jobs.add_run_jobs(KIND, added)


def end_window(run_id: UUID, request_id: UUID) -> None:
    """Wake a run in whose request a window has ended, so that its worker asks the
    policies. Does nothing if the run is not at rest, or its request is closed.
    """
    waiting = ApprovalRequest.objects.filter(
        id=request_id, run=run_id, status=RequestStatus.OPEN
    )
    if not waiting.exists():
        return
    with transaction.atomic():
        notify.wake(run_id)
