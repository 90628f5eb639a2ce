"""What kinds of jobs there are, and the work on one of them for one slice. Called by the worker's task.

A kind is a generator function: it is given the hold and yields a `Step` after each piece of work. Between two pieces
its progress is kept, and it may be stopped there: when the slice is over, the worker drains or dies. It is then called
anew and goes on from `hold.place`. So a piece may be done twice, and must bear that.
"""

import time
from collections.abc import Callable, Iterator
from uuid import UUID

import structlog
from django.db import Error, connection

from checkpoints import anchors, erasure
from checkpoints.conf import conf
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import Job
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention import policy_schedules, prune_job, standing_jobs, stock
from orchestrator.engine.errors import CountersignError, Forbidden, StaleLease, described
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.loop import never
from orchestrator.execution.secrets import writable
from orchestrator.jobs import integrity, old_access
from orchestrator.runs import bulk_fork

Kind = Callable[[JobLease], Iterator[Step]]

KINDS: dict[str, Kind] = {
    "anchor_heads": anchors.anchor_heads,
    erasure.KIND: erasure.erase_job,
    bulk_fork.KIND: bulk_fork.fork_job,
    policy_schedules.KIND: policy_schedules.run_policies,
    stock.KIND: stock.measure_storage,
    prune_job.KIND: prune_job.prune_job,
    "rotate_keys": integrity.rotate_job,
    "sweep_access": old_access.access_that_ended,
    "sweep_bulk_forks": bulk_fork.old_bulk_forks,
    "sweep_jobs": standing_jobs.jobs_that_ended,
    "sweep_memory": standing_jobs.memory_that_is_old,
    "sweep_payloads": standing_jobs.payloads_without_a_row,
    "sweep_uploads": standing_jobs.uploads_without_a_run,
    "sweep_workers": standing_jobs.workers_that_left,
    "verify_runs": integrity.verify_job,
}
"""Our own kinds by name."""

MINUTE, DAY = 60.0, 86_400.0
STANDING: dict[str, float] = {
    "anchor_heads": MINUTE,
    **dict.fromkeys(("sweep_access", "sweep_bulk_forks", "sweep_jobs", "sweep_memory"), DAY),
    policy_schedules.KIND: DAY,
    stock.KIND: DAY,
    **dict.fromkeys(("sweep_payloads", "sweep_uploads", "sweep_workers"), DAY),
}
"""Jobs that every installation has one of, and the seconds between two of their turns."""
FIRST_TURN = 3600.0
"""Seconds until a standing job's first turn, at most."""

log = structlog.get_logger(__name__)


def ensure_standing() -> None:
    """Add the standing jobs that are not there. Called when a cluster shows itself; as often as one likes."""
    for kind, seconds in STANDING.items():
        jobs.add_job(kind, name=kind, due_in=min(FIRST_TURN, seconds))


def run_job(job_id: UUID, epoch: int, *, draining: Callable[[], bool] = never) -> None:
    """One slice of one job. Leaves quietly where the lease is not, or no longer, his. Raises `OpenTransaction`."""
    refuse_open_transaction("run_job")
    lease = jobs.begin_job(job_id, epoch)
    if lease is None:
        return
    try:
        with Heartbeat(lease, beat=lambda: jobs.heartbeat(lease.id, lease.epoch)) as heart:
            _attempt(lease, heart, draining)
    except StaleLease:
        log.info("lease_lost", job=str(job_id), epoch=lease.epoch)
    except Error as error:
        # Its lease runs out, and the next worker goes on from its place.
        log.warning("database_failed", job=str(job_id), error=str(error))
        connection.close()


def advance(job_id: UUID) -> Job:
    """Claim the job and work on it here and now, until it ends or is not due. For commands and tests. Raises
    `OpenTransaction` inside a transaction of the caller, before anything is claimed.
    """
    refuse_open_transaction("jobs.advance")
    while epoch := jobs.claim_one(job_id):
        run_job(job_id, epoch)
    return Job.objects.get(id=job_id)


def _attempt(lease: JobLease, heart: Heartbeat, draining: Callable[[], bool]) -> None:
    kind, again_in = KINDS.get(lease.kind), STANDING.get(lease.kind)
    if kind is None:
        # Perhaps a newer version's: its workers may take it at the next attempt.
        jobs.fail_job(lease, "unknown_kind", f"this worker knows no job of the kind {lease.kind!r}")
    elif lease.attempts > jobs.MOST_ATTEMPTS:
        message = f"{lease.attempts - 1} workers began this job and got no further"
        jobs.fail_job(lease, "poison", message, again_in=again_in)
    else:
        try:
            _slice(lease, kind, heart, draining, again_in)
        except (StaleLease, Error):
            raise
        except Forbidden as refused:
            # Who asked for it has lost the right: to try again would only refuse it again.
            jobs.fail_job(lease, refused.code, refused.message, again_in=again_in, final=True)
        except Exception as error:
            log.exception("job_failed", job=str(lease.id), kind=lease.kind)
            code = error.code if isinstance(error, CountersignError) else "job_failed"
            text = writable(described(error))
            jobs.fail_job(lease, code, text, again_in=again_in)


def _slice(lease: JobLease, kind: Kind, heart: Heartbeat, draining: Callable[[], bool], again_in: float | None) -> None:
    until = time.monotonic() + conf().slice_seconds
    for step in kind(lease):
        jobs.report(lease, step)
        if heart.lost.is_set():
            raise StaleLease("another worker has this job", job=str(lease.id))
        if draining() or time.monotonic() > until:
            return jobs.give_back(lease)
    return jobs.finish_job(lease, again_in=again_in)
