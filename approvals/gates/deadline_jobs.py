"""The jobs that meet the deadline of a request, and the next of its tiers: one of each,
written in the transaction that opens or reopens the request. `approvals.deadlines` and
`approvals.silence.tiers` do their work.

Where the moment that the terms of a gate name has passed and people are asked again, a
request gives them as long as the first one did.

When a job is due decides when silence may act, for whoever looks: never before, though
the moment has passed.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from checkpoints import lines
from checkpoints.db.clock import db_now
from checkpoints.models.job import LIVE, Job, JobStatus
from checkpoints.queue import job_seals, jobs
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Gate
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.gate_on_run import DueAt

KIND = "meet_deadline"
"""The kind of the jobs of deadlines. Their fact `request` is the id of the request."""
TIER_KIND = "meet_tier"
"""The kind of the jobs of tiers, with the same fact: each acts for the next tier."""
KINDS = (KIND, TIER_KIND)
WINDOW_KIND = "end_window"
"""The kind of the jobs of windows, which `approvals.answers.windows` queues."""
TIMED = Q(deadline__isnull=False) | Q(tier_at__isnull=False)
"""The condition of requests that have a job."""


def moment_of(kind: str, request: ApprovalRequest) -> datetime | None:
    """Return when a job of this kind is to act for a request; None: never."""
    if kind == TIER_KIND:
        return request.tier_at
    return request.deadline


def add_request_jobs(
    requests: Iterable[ApprovalRequest],
    *,
    earliest: datetime | None = None,
    kinds: Iterable[str] = KINDS,
) -> None:
    """Queue the jobs of the deadlines and next tiers of these requests, in the caller's
    transaction, due then or at `earliest` if that is later. A second job for a request
    does no harm: it finds nothing to do.
    """
    requests = list(requests)
    for kind in kinds:
        _add(kind, requests, earliest)


def _add(
    kind: str, requests: Iterable[ApprovalRequest], earliest: datetime | None = None
) -> None:
    added: list[jobs.RunJob] = []
    for request in requests:
        at = moment_of(kind, request)
        if at is not None:
            facts = {"request": str(request.id)}
            added.append(jobs.RunJob(request.run_id, max(at, earliest or at), facts))
    jobs.add_run_jobs(kind, added)


def add_missing_jobs(run_id: UUID, requests: Iterable[ApprovalRequest]) -> None:
    """Queue the jobs, as `add_request_jobs` does, that these requests of a locked run
    lack. A queued job stays unchanged: it may be due later than its moment, or be
    paused.
    """
    requests = list(requests)
    for kind in KINDS:
        timed = [row for row in requests if moment_of(kind, row) is not None]
        if timed:
            with_job = requests_in_queue(kind, run_id)
            _add(kind, [row for row in timed if str(row.id) not in with_job])


def requests_in_queue(kind: str, run_id: UUID) -> set[str]:
    """Return the ids of the requests of a run that have a job of this kind that has not
    begun: one that runs may have looked already, before the run could be decided.
    """
    return {*due_by_request(kind, run_id)}


def due_by_request(kind: str, run_id: UUID) -> dict[str, datetime]:
    """Return when the jobs are due that `requests_in_queue` names, by request: the
    latest of each. One query.
    """
    due: dict[str, datetime] = {}
    for job in _jobs_of(kind, run_id).filter(status=JobStatus.QUEUED):
        if _is_sound(job):
            request = job.facts["request"]
            due[request] = max(job.due_at, due.get(request, job.due_at))
    return due


def replace_jobs(
    run_id: UUID, requests: Iterable[ApprovalRequest], *, earliest: datetime
) -> None:
    """End every job of the deadlines and tiers of a locked run, including those that
    are paused, and queue those of these requests, due at `earliest` or later.
    """
    for kind in KINDS:
        jobs.cancel_jobs_of(run_id, kind=kind)
    add_request_jobs(requests, earliest=earliest)


def pause_jobs(run_id: UUID) -> None:
    """Pause every job of the deadlines, tiers and windows of a run that has not begun."""
    for kind in (*KINDS, WINDOW_KIND):
        jobs.pause_jobs_of(run_id, kind)


def is_due(run_id: UUID, request_id: UUID, *, kind: str = KIND) -> bool:
    """Return whether silence may act in a request now: whether a job of this kind is
    due for it, or runs. One query.
    """
    jobs_of_request = _jobs_of(kind, run_id).filter(facts__request=str(request_id))
    has_come = Q(due_at__lte=db_now())
    # A worker has found that it is due.
    has_begun = Q(status=JobStatus.RUNNING)
    due = jobs_of_request.filter(has_come | has_begun)
    return any(_is_sound(job) for job in due)


def is_job_of(job: Job, request: ApprovalRequest) -> bool:
    """Return whether a job, by its sealed facts, belongs to this request."""
    return job.facts.get("request") == str(request.id) and _is_sound(job)


def _jobs_of(kind: str, run_id: UUID) -> "QuerySet[Job]":
    """Return the jobs of this kind of a run that have not ended."""
    live = Job.objects.filter(run=run_id, kind=kind, status__in=LIVE)
    return live.order_by("id")


def _is_sound(job: Job) -> bool:
    """Return whether a job matches its seal: a worker would begin no other."""
    try:
        job_seals.require_sound(job)
    except CountersignError:
        return False
    return True


# How long people have.

SHORTEST = timedelta(minutes=1)
"""The shortest time that people are granted again."""


@frozen
class AskingPlace:
    """The line on which people are asked, or from which that line departs."""

    run: UUID
    line: int


def time_of(request: ApprovalRequest) -> timedelta:
    """Return how long a request gave people, at least `SHORTEST`."""
    if request.deadline is None:
        return SHORTEST
    # The moments are by two clocks, which may differ.
    return max(request.deadline - request.opened_at, SHORTEST)


def with_time(gate: Gate, node: str, now: datetime, place: AskingPlace) -> Gate:
    """Return a gate that gives as long a time as the first request of this node gave on
    the way to a place, if the moment that is its deadline has passed; else the gate
    itself. Only then there are queries: one for each run on the way, and one for the
    request. Raises `TamperedRow`, `WrongKey`.
    """
    due = gate.deadline
    if not isinstance(due, DueAt) or due.moment > now:
        return gate
    runs = {stretch.run for stretch in lines.past(place.run, place.line)}
    first = _first_with_deadline(runs, node)
    # Nobody has been asked yet: it is due at once.
    if first is None:
        return gate
    return replace(gate, deadline=time_of(first))


def _first_with_deadline(runs: Collection[UUID], node: str) -> ApprovalRequest | None:
    rows = ApprovalRequest.objects.select_related("run").filter(run__in=runs, node=node)
    first = rows.exclude(deadline=None).order_by("opened_at", "id").first()
    if first is not None:
        sealed_rows.verify_row(first, protection_of(first.run))
    return first
