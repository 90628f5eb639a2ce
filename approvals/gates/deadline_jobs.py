"""The jobs that meet deadlines: one for each request with a deadline, written in the
transaction that opens or reopens the request. `approvals.deadlines` does their work.

When a job is due decides when silence may act, for whoever looks: never before, though
the deadline has passed.
"""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from checkpoints.db.clock import db_now
from checkpoints.models.job import LIVE, Job, JobStatus
from checkpoints.queue import job_seals, jobs
from orchestrator.engine.errors import CountersignError

KIND = "meet_deadline"
"""The kind of these jobs. Their fact `request` is the id of the request."""


def add_deadline_jobs(
    requests: Iterable[ApprovalRequest], *, earliest: datetime | None = None
) -> None:
    """Queue a job for each of these requests that has a deadline, in the caller's
    transaction, due then or at `earliest` if that is later. A second job for a request
    does no harm: it finds nothing to decide.
    """
    added: list[jobs.RunJob] = []
    for request in requests:
        if request.deadline is not None:
            facts = {"request": str(request.id)}
            due_at = max(request.deadline, earliest or request.deadline)
            added.append(jobs.RunJob(request.run_id, due_at, facts))
    jobs.add_run_jobs(KIND, added)


def add_missing_jobs(run_id: UUID, requests: Iterable[ApprovalRequest]) -> None:
    """Queue a job, as `add_deadline_jobs` does, for each of these requests of a locked
    run that has none in the queue. One that is queued stays as it is: it may be due
    later than the deadline, or be paused.
    """
    waiting = [request for request in requests if request.deadline is not None]
    if not waiting:
        return
    with_job = _requests_in_queue(run_id)
    missing = []
    for request in waiting:
        if str(request.id) not in with_job:
            missing.append(request)
    add_deadline_jobs(missing)


def _requests_in_queue(run_id: UUID) -> set[str]:
    """Return the ids of the requests of a run whose deadlines have a job that has not
    begun: one that runs may have looked already, before the run could be decided.
    """
    with_job = set()
    for job in _jobs_of(run_id).filter(status=JobStatus.QUEUED):
        if _is_sound(job):
            with_job.add(job.facts["request"])
    return with_job


def replace_jobs(
    run_id: UUID, requests: Iterable[ApprovalRequest], *, earliest: datetime
) -> None:
    """End every job of the deadlines of a locked run, also those that are paused, and
    queue one for each of these requests, due at `earliest` or later.
    """
    jobs.cancel_jobs_of(run_id, kind=KIND)
    add_deadline_jobs(requests, earliest=earliest)


def is_due(run_id: UUID, request_id: UUID) -> bool:
    """Return whether silence may act in a request now: whether a job of its deadline is
    due, or runs. One query.
    """
    jobs_of_request = _jobs_of(run_id).filter(facts__request=str(request_id))
    has_come = Q(due_at__lte=db_now())
    # A worker has found that it is due.
    has_begun = Q(status=JobStatus.RUNNING)
    due = jobs_of_request.filter(has_come | has_begun)
    return any(_is_sound(job) for job in due)


def is_job_of(job: Job, request: ApprovalRequest) -> bool:
    """Return whether a job, as it was sealed, is that of the request's deadline."""
    return job.facts.get("request") == str(request.id) and _is_sound(job)


def _jobs_of(run_id: UUID) -> "QuerySet[Job]":
    """Return the jobs of deadlines of a run that have not ended."""
    live = Job.objects.filter(run=run_id, kind=KIND, status__in=LIVE)
    return live.order_by("id")


def _is_sound(job: Job) -> bool:
    """Return whether a job is as it was sealed: a worker would begin no other."""
    try:
        job_seals.require_sound(job)
    except CountersignError:
        return False
    return True
