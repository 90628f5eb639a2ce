"""The writes about which policies were not asked, when their windows end in which people
may decide first, and the job that wakes a run then.

The job is written in the transaction in which the run comes to rest, so that no worker
that dies leaves a window without its end.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from approvals.gates.deadline_jobs import requests_in_queue
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite
from checkpoints.queue import jobs, notify
from orchestrator.engine.graphs.auto import window_end
from orchestrator.engine.graphs.standing_policy import signs_by_itself

KIND = "end_window"
"""The kind of the jobs. Their fact `request` is the id of the request."""


def unasked_writes(state: RequestState) -> list[PendingWrite]:
    """Return the open writes of a request about whose present revision no policy was
    asked; none if it was opened without any.
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
        is_answered = (write.write, write.revision) in answered
        if not (is_answered or state.standings[write.write].settled):
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


def end_window(run_id: UUID, request_id: UUID) -> None:
    """Wake a run in whose request a window has ended, so that its worker asks the
    policies. A run that does not rest is left alone, as is one whose request is closed.
    """
    waiting = ApprovalRequest.objects.filter(
        id=request_id, run=run_id, status=RequestStatus.OPEN
    )
    if not waiting.exists():
        return
    with transaction.atomic():
        notify.wake(run_id)
