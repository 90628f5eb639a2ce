"""The verbs of jobs: add, claim, begin, report, finish, fail, cancel. A job is added in
the transaction of the change that makes it necessary; the broker claims it, and
`orchestrator.jobs` runs it.

Every statement of a lease's holder names the epoch, so a holder that lost the lease
changes nothing. Times are the database's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.arguments import (
    checked_moment,
    checked_number,
    checked_seconds,
    checked_text,
)
from checkpoints.core.ids import uuid7, uuid_of
from checkpoints.core.visible_text import LONGEST_JOB_ERROR
from checkpoints.db import query_cache
from checkpoints.db.clock import db_in, db_now, kept_now
from checkpoints.models.job import LIVE, Job, JobStatus
from checkpoints.queue import job_seals, notify
from checkpoints.queue.queue import BACK, Queue
from orchestrator.engine.errors import CountersignError, StaleLease

LONGEST = 100 * 366 * 86_400
"""The longest `due_in`: the seconds of a hundred years."""
PAUSED = datetime(9000, 1, 1, tzinfo=UTC)
"""When a paused job is due: never."""
MOST_ATTEMPTS = 5
"""The most attempts without a slice that ended well; then the job has failed for good.
"""
# The columns of the job that its holder needs, returned by the statement that begins.
_HELD = [
    "id",
    "epoch",
    "kind",
    "name",
    "facts",
    "run",
    "progress",
    "attempts",
    "facts_seal",
    "place_seal",
]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of a job. Its next slice continues from `place`: any JSON, which it
    reads as `JobLease.place`. With a `pause`, in seconds, that slice begins after it.
    """

    done: int
    total: int = 0
    note: str = ""
    place: Any = None
    pause: float = 0.0


@dataclass(slots=True)
class JobLease:
    """A begun job, as its holder knows it."""

    id: UUID
    epoch: int
    kind: str
    name: str | None
    facts: dict[str, Any]
    run: UUID | None
    attempts: int
    progress: dict[str, Any] = field(default_factory=dict)
    facts_seal: str = ""
    place_seal: str = ""

    @property
    def place(self) -> Any:
        """Return the place in the last report of an earlier slice or attempt; None at
        the beginning.
        """
        return self.progress.get("place")


@dataclass(frozen=True, slots=True)
class RunJob:
    """A job to be added for a run: its facts, and when it is due."""

    run: UUID
    due_at: datetime
    facts: dict[str, Any]


UNFAILING = {"meet_deadline": 300.0, "meet_tier": 300.0, "end_window": 300.0}
"""Kinds whose jobs are tried again whatever the error, and the seconds until then: what
they do, nothing else would do in their place.
"""


def add_job(
    kind: str,
    *,
    due_at: datetime | None = None,
    due_in: float = 0.0,
    run: UUID | str | None = None,
    name: str | None = None,
    priority: int = 0,
    **facts: Any,
) -> UUID:
    """Queue a job in the caller's transaction, and return its id. `due_in` is in
    seconds. Raises `InvalidValue`.

    If a job of that `name` is queued or running already, its id is returned, and
    nothing is added.
    """
    due = _due(due_at, due_in)
    checked_text(kind, "kind", least=1, most=60)
    checked_number(priority, "priority", least=-(2**31), most=2**31 - 1)
    name = None if name is None else checked_text(name, "name", least=1, most=200)
    run = None if run is None else uuid_of(run, "run")
    row = Job(
        id=uuid7(),
        kind=kind,
        name=name,
        facts=facts,
        run=run,
        priority=priority,
        due_at=due,
        created_at=db_now(),
    )
    row.facts_seal = job_seals.facts_seal(row.id, kind, name, run, facts)
    job_id = _insert_or_find(row)
    # Else the job that is live already was announced when it was added.
    if job_id == row.id:
        notify.notify_workers(notify.JOB_DUE)
    return job_id


def add_run_jobs(kind: str, added: Sequence[RunJob]) -> None:
    """Queue jobs of one kind, without names, in the caller's transaction: one statement
    for some hundred of them, and one more on PostgreSQL if one is due already. Raises
    `InvalidValue`.
    """
    if not added:
        return
    checked_text(kind, "kind", least=1, most=60)
    rows: list[Job] = []
    for job in added:
        row = Job(
            id=uuid7(),
            kind=kind,
            facts=job.facts,
            run=job.run,
            due_at=checked_moment(job.due_at, "due_at"),
            created_at=db_now(),
        )
        row.facts_seal = job_seals.facts_seal(row.id, kind, None, job.run, job.facts)
        rows.append(row)
    Job.objects.bulk_create(rows)
    # Workers look by themselves, too, so that their clock may be another one.
    now = timezone.now()
    if any(job.due_at <= now for job in added):
        notify.notify_workers(notify.JOB_DUE)


def _due(due_at: datetime | None, due_in: float) -> Any:
    if due_at is not None:
        return checked_moment(due_at, "due_at")
    return db_in(checked_seconds(due_in, "due_in", most=LONGEST))


def _insert_or_find(row: Job) -> UUID:
    """Insert a job, unless one of its name is live. Return the id of the live job."""
    if row.name is None:
        Job.objects.bulk_create([row])
        return row.id
    while True:
        # An error, even one that is caught, would end the caller's transaction.
        Job.objects.bulk_create([row], ignore_conflicts=True)
        job_id = _live(row.name)
        # Else the conflicting job has ended between the two statements.
        if job_id is not None:
            return job_id


def _live(name: str) -> UUID | None:
    rows = Job.objects.filter(name=name, status__in=LIVE)
    return rows.values_list("id", flat=True).first()


def _ready() -> Q:
    return Q(status=JobStatus.QUEUED, due_at__lte=kept_now())


JOBS = Queue(
    Job,
    LIVE,
    _ready,
    ("-priority", "due_at", "created_at"),
)
"""Jobs that are due, or whose worker is gone."""
claim = JOBS.claim
any_due = JOBS.any_due
renew = JOBS.renew


def claim_one(job_id: UUID, *, worker: UUID | None = None) -> int | None:
    """Take this job if it is due, and return its epoch."""
    taken = JOBS.claim_one(job_id, worker=worker)
    return taken.epoch if taken else None


def release(job_id: UUID, epoch: int) -> None:
    """Return a claim that was not begun to the queue."""
    JOBS.change(job_id, epoch, **BACK)


def begin_job(job_id: UUID, epoch: int) -> JobLease | None:
    """Begin the lease of a claim; it is the worker's first statement. Returns None if
    the worker came too late and must leave. Counts an attempt.

    A job whose facts or place do not match their seals fails for good without being
    run, or is tried again if it is of a kind in `UNFAILING`.
    """
    # The epoch rises again, so that of two workers with one message only one begins.
    rows = JOBS.lengthen(
        job_id, epoch, _HELD, epoch=epoch + 1, attempts=F("attempts") + 1
    )
    if not rows:
        return None
    lease = JobLease(**dict(zip(_HELD, rows[0], strict=True)))
    try:
        job_seals.require_sound(lease)
    except CountersignError as error:
        log.error("job_refused", job=str(job_id), kind=lease.kind, code=error.code)
        fail_job(lease, error.code, error.message, final=True)
        return None
    return lease


def heartbeat(job_id: UUID, epoch: int) -> bool:
    """Lengthen a begun lease. Returns False if it is lost."""
    return bool(JOBS.lengthen(job_id, epoch))


def report(lease: JobLease, step: Step) -> None:
    """Save the progress of a job, and lengthen its lease. Raises `StaleLease`."""
    lease.progress = {
        "done": step.done,
        "total": step.total,
        "note": step.note[:200],
        "place": step.place,
    }
    lease.place_seal = job_seals.place_seal(lease.id, lease.kind, step.place)
    _change(
        lease,
        progress=lease.progress,
        place_seal=lease.place_seal,
        lease_until=db_in(conf().lease_seconds),
    )


def change_facts(lease: JobLease, facts: dict[str, Any]) -> None:
    """Replace the facts of a job, and seal them. Raises `StaleLease`."""
    lease.facts = facts
    lease.facts_seal = job_seals.facts_seal(
        lease.id, lease.kind, lease.name, lease.run, facts
    )
    _change(lease, facts=facts, facts_seal=lease.facts_seal)


def give_back(lease: JobLease, *, pause: float = 0.0) -> None:
    """End a slice that went well: the job is due again after a pause in seconds, and
    goes on from its place. Raises `StaleLease`.
    """
    _change(lease, due_at=db_in(pause), attempts=0, **BACK)


def finish_job(lease: JobLease, *, again_in: float | None = None) -> None:
    """End a job as done; a standing job becomes due again, from the beginning, after
    this many seconds.

    Raises `StaleLease`: as the last call in the transaction of the job's work, it makes
    sure that the work happens once.
    """
    if again_in is None:
        _change(lease, **_ended(JobStatus.DONE), error_code="", error="")
        return
    _change(
        lease,
        due_at=db_in(again_in),
        attempts=0,
        progress={},
        place_seal="",
        error_code="",
        error="",
        **BACK,
    )


def fail_job(
    lease: JobLease,
    code: str,
    message: str,
    *,
    again_in: float | None = None,
    final: bool = False,
) -> None:
    """Make a job due again after a pause, because it went wrong. After `MOST_ATTEMPTS`
    attempts, or at once where this is `final`, it has failed for good, or is due again
    in `again_in` seconds. A job of a kind in `UNFAILING` never fails for good.

    Raises `StaleLease`.
    """
    if again_in is None:
        again_in = UNFAILING.get(lease.kind)
    error = {"error_code": code, "error": message[:LONGEST_JOB_ERROR]}
    if lease.attempts < MOST_ATTEMPTS and not final:
        # The first pause is 2 s, each next one twice as long.
        _change(lease, due_at=db_in(2.0**lease.attempts), **BACK, **error)
    elif again_in is not None:
        _change(lease, due_at=db_in(again_in), attempts=0, **BACK, **error)
    else:
        _change(lease, **_ended(JobStatus.FAILED), **error)


def _ended(status: str) -> dict[str, Any]:
    """Return the columns of a job that its holder ends."""
    return {**BACK, "status": status, "ended_at": db_now()}


def pause_job(job_id: UUID | str) -> bool:
    """Pause a job until `continue_job`. Its worker finds its lease lost, and work that
    it had not reported is done again. Returns False if the job has ended.
    """
    rows = Job.objects.filter(id=uuid_of(job_id, "job"), status__in=LIVE)
    return bool(rows.update(due_at=PAUSED, epoch=F("epoch") + 1, **BACK))


def pause_jobs_of(run_id: UUID, kind: str) -> int:
    """Pause the jobs of one kind of a run, each until `continue_job`, and return how
    many there were.
    """
    rows = Job.objects.filter(run=run_id, kind=kind, status__in=LIVE)
    return rows.update(due_at=PAUSED, epoch=F("epoch") + 1, **BACK)


def continue_job(job_id: UUID | str) -> bool:
    """Continue a paused job from its place. Returns False if it was not paused."""
    rows = Job.objects.filter(
        id=uuid_of(job_id, "job"), status=JobStatus.QUEUED, due_at=PAUSED
    )
    continued = bool(rows.update(due_at=db_now()))
    if continued:
        notify.notify_workers(notify.JOB_DUE)
    return continued


def wake_named(name: str, *, due_in: float) -> bool:
    """Make a job of this name due within this many seconds, in the caller's
    transaction. Returns False if none waits longer for its next turn: one that is
    paused, or waits after a failure, is left as it is.
    """
    rows = Job.objects.filter(name=name, status=JobStatus.QUEUED, attempts=0)
    due = db_in(due_in)
    return bool(rows.filter(due_at__gt=due, due_at__lt=PAUSED).update(due_at=due))


def is_paused(job: Job) -> bool:
    """Return whether a job is paused until `continue_job`."""
    return job.status == JobStatus.QUEUED and job.due_at == PAUSED


def cancel_job(job_id: UUID | str) -> bool:
    """End a job that is queued or running; its worker finds its lease lost. Returns
    False where it had ended before.
    """
    return bool(_cancel(Job.objects.filter(id=uuid_of(job_id, "job"))))


def cancel_jobs_of(run_id: UUID | str, *, kind: str | None = None) -> int:
    """End all jobs of a run, or those of one kind, and return how many there were."""
    run = uuid_of(run_id, "run")
    # Most runs have no job, and looking for one costs less than the UPDATE.
    if not query_cache.exists(_query_live, run):
        return 0
    rows = Job.objects.filter(run=run)
    if kind is not None:
        rows = rows.filter(kind=kind)
    return _cancel(rows)


def _query_live(run: UUID) -> "QuerySet[Any, Any]":
    return Job.objects.filter(run=run, status__in=LIVE).order_by().values_list("id")[:1]


def _cancel(rows: Any) -> int:
    # The epoch may stay: a holder changes its row only while that is running.
    changed: int = rows.filter(status__in=LIVE).update(
        status=JobStatus.CANCELLED, ended_at=db_now(), lease_until=None, leased_by=None
    )
    return changed


def _change(lease: JobLease, **values: Any) -> None:
    if not JOBS.change(lease.id, lease.epoch, **values):
        raise StaleLease(
            "another worker has this job", job=str(lease.id), epoch=lease.epoch
        )
