"""The verbs of jobs: add, claim, begin, report, finish, fail, cancel. Whoever changes what a job is for adds it in his
transaction; the broker claims; `orchestrator.jobs` runs it.

Every statement of a holder names the epoch, so whoever lost the lease changes nothing. Times are the database's.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db.models import F, Q

from checkpoints.conf import conf
from checkpoints.core.arguments import checked_moment, checked_number, checked_seconds, checked_text
from checkpoints.core.ids import uuid7, uuid_of
from checkpoints.core.visible_text import LONGEST_JOB_ERROR
from checkpoints.db.clock import db_in, db_now, kept_now
from checkpoints.models.job import LIVE, Job, JobStatus
from checkpoints.queue import job_seals, notify
from checkpoints.queue.queue import BACK, Queue
from orchestrator.engine.errors import CountersignError, StaleLease

LONGEST = 100 * 366 * 86_400
"""Seconds."""
PAUSED = datetime(9000, 1, 1, tzinfo=UTC)
"""When a paused job is due: in no time that anybody counts."""
MOST_ATTEMPTS = 5
"""Begun without a slice that ended well; then the job has failed, and stays failed."""
_HELD = ["id", "epoch", "kind", "name", "facts", "run", "progress", "attempts", "facts_seal", "place_seal"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """How far a job has got. `place` is what its next slice goes on from: any JSON, read back as `JobHold.place`."""

    done: int
    total: int = 0
    note: str = ""
    place: Any = None


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
        """What the last report of an earlier slice or attempt said; None at the beginning."""
        return self.progress.get("place")


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
    """Queue a job in the caller's transaction, and give its id. `due_in` is in seconds. Raises `InvalidValue`.

    Where a job of that `name` is queued or running already, that one's id is given, and nothing is added.
    """
    due = db_in(checked_seconds(due_in, "due_in", most=LONGEST)) if due_at is None else checked_moment(due_at, "due_at")
    checked_text(kind, "kind", least=1, most=60)
    checked_number(priority, "priority", least=-(2**31), most=2**31 - 1)
    name = None if name is None else checked_text(name, "name", least=1, most=200)
    run = None if run is None else uuid_of(run, "run")
    row = Job(
        id=uuid7(), kind=kind, name=name, facts=facts, run=run, priority=priority, due_at=due, created_at=db_now()
    )
    row.facts_seal = job_seals.facts_seal(row.id, kind, name, run, facts)
    while True:
        Job.objects.bulk_create([row], ignore_conflicts=name is not None)
        found = _live(name) if name is not None else row.id
        if found is not None:  # else the one in our way has ended between the two statements
            break
    if found == row.id:
        notify.notify_workers(notify.JOB_DUE)
    return found


def _live(name: str) -> UUID | None:
    return Job.objects.filter(name=name, status__in=LIVE).values_list("id", flat=True).first()


JOBS = Queue(
    Job, LIVE, lambda: Q(status=JobStatus.QUEUED, due_at__lte=kept_now()), ("-priority", "due_at", "created_at")
)
"""Jobs that are due, or whose worker is gone."""
claim, any_due, renew = partial(JOBS.claim, only=None), partial(JOBS.any_due, None), JOBS.renew


def claim_one(job_id: UUID, *, worker: UUID | None = None) -> int | None:
    """Take this job if it is due. Gives its epoch."""
    taken = JOBS.claim_one(job_id, worker=worker)
    return taken.epoch if taken else None


def release(job_id: UUID, epoch: int) -> None:
    """Put a claim that nobody has begun back into the queue."""
    JOBS.change(job_id, epoch, **BACK)


def begin_job(job_id: UUID, epoch: int) -> JobLease | None:
    """The worker's first statement. None means that it came too late and must leave. Counts an attempt.

    A job whose facts or place are not as they were sealed has failed for good, and nobody works on it.
    """
    rows = JOBS.lengthen(job_id, epoch, _HELD, epoch=epoch + 1, attempts=F("attempts") + 1)
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
    """Lengthen a begun lease. False: it is lost."""
    return bool(JOBS.lengthen(job_id, epoch))


def report(lease: JobLease, step: Step) -> None:
    """Keep how far it has got, and lengthen the lease. Raises `StaleLease`."""
    lease.progress = {"done": step.done, "total": step.total, "note": step.note[:200], "place": step.place}
    lease.place_seal = job_seals.place_seal(lease.id, lease.kind, step.place)
    until = db_in(conf().lease_seconds)
    _change(lease, progress=lease.progress, place_seal=lease.place_seal, lease_until=until)


def change_facts(lease: JobLease, facts: dict[str, Any]) -> None:
    """Give a job other facts, sealed. Raises `StaleLease`."""
    lease.facts = facts
    lease.facts_seal = job_seals.facts_seal(lease.id, lease.kind, lease.name, lease.run, facts)
    _change(lease, facts=facts, facts_seal=lease.facts_seal)


def give_back(lease: JobLease) -> None:
    """End a slice that went well: due again at once, on from its place. Raises `StaleLease`."""
    _change(lease, due_at=db_now(), attempts=0, **BACK)


def finish_job(lease: JobLease, *, again_in: float | None = None) -> None:
    """It is done; or, where it stands for ever, due again in so many seconds, from the beginning.

    Raises `StaleLease`: called last in the transaction of what the job does, it makes that happen once.
    """
    values: dict[str, Any] = BACK | {"error_code": "", "error": ""}
    if again_in is None:
        _change(lease, **values | {"status": JobStatus.DONE, "ended_at": db_now()})
    else:
        _change(lease, due_at=db_in(again_in), attempts=0, progress={}, place_seal="", **values)


def fail_job(lease: JobLease, code: str, message: str, *, again_in: float | None = None, final: bool = False) -> None:
    """It went wrong: due again after a pause; after `MOST_ATTEMPTS` of them, or at once where this is `final`, failed,
    or due again in `again_in` s.

    Raises `StaleLease`.
    """
    values: dict[str, Any] = BACK | {"error_code": code, "error": message[:LONGEST_JOB_ERROR]}
    if lease.attempts < MOST_ATTEMPTS and not final:
        # The first pause is 2 s, each next one twice as long.
        _change(lease, due_at=db_in(2.0**lease.attempts), **values)
    elif again_in is not None:
        _change(lease, due_at=db_in(again_in), attempts=0, **values)
    else:
        _change(lease, **values | {"status": JobStatus.FAILED, "ended_at": db_now()})


def pause_job(job_id: UUID | str) -> bool:
    """Let a job rest until `continue_job`; who works on it finds his lease lost, and what he had not reported is done
    anew. False: it has ended.
    """
    rows = Job.objects.filter(id=uuid_of(job_id, "job"), status__in=LIVE)
    return bool(rows.update(due_at=PAUSED, epoch=F("epoch") + 1, **BACK))


def continue_job(job_id: UUID | str) -> bool:
    """Let a job go on from its place. False: it was not paused."""
    rows = Job.objects.filter(id=uuid_of(job_id, "job"), status=JobStatus.QUEUED, due_at=PAUSED)
    continued = bool(rows.update(due_at=db_now()))
    if continued:
        notify.notify_workers(notify.JOB_DUE)
    return continued


def is_paused(job: Job) -> bool:
    """Whether a job rests until somebody lets it go on."""
    return job.status == JobStatus.QUEUED and job.due_at == PAUSED


def cancel_job(job_id: UUID | str) -> bool:
    """End a job that is queued or running; who works on it finds his lease lost. False: it had ended before."""
    return bool(_cancel(Job.objects.filter(id=uuid_of(job_id, "job"))))


def cancel_jobs_of(run_id: UUID | str) -> int:
    """The same for all jobs of a run. Gives how many there were."""
    return _cancel(Job.objects.filter(run=uuid_of(run_id, "run")))


def _cancel(rows: Any) -> int:
    changed: int = rows.filter(status__in=LIVE).update(
        status=JobStatus.CANCELLED, ended_at=db_now(), lease_until=None, leased_by=None
    )
    return changed


def _change(lease: JobLease, **values: Any) -> None:
    if not JOBS.change(lease.id, lease.epoch, **values):
        raise StaleLease("another worker has this job", job=str(lease.id), epoch=lease.epoch)
