"""The kinds of jobs, and one slice of work on a job. Called by the worker's task.

A kind is a generator function: it takes the lease and yields a `Step` after each piece
of work. Between two pieces its progress is saved, and it may be stopped there: when the
slice is over, or the worker drains or dies. It is then called again and continues at
`lease.place`. So a piece may be done twice, and must allow for that.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import structlog
from django.db import Error, connection

from approvals import list_columns
from approvals.answers import windows
from approvals.doors import messages as door_messages
from approvals.gates import deadline_jobs, new_requests
from approvals.notices import delivery_jobs
from approvals.webhooks import verbs as webhooks
from checkpoints import anchors, erasure, time_stamps
from checkpoints.conf import conf
from checkpoints.core import work_sums
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import Job
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention import policy_schedules, prune_job, standing_jobs, stock
from orchestrator.engine.errors import (
    CountersignError,
    Forbidden,
    StaleLease,
    described,
)
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.loop import never
from orchestrator.execution.secrets import writable
from orchestrator.jobs import integrity, old_access, passed_deadlines
from orchestrator.travel import bulk_fork

Kind = Callable[[JobLease], Iterator[Step]]

KINDS: dict[str, Kind] = {
    "anchor_heads": anchors.anchor_heads,
    erasure.KIND: erasure.erase_job,
    bulk_fork.KIND: bulk_fork.fork_job,
    deadline_jobs.KIND: passed_deadlines.meet_job,
    deadline_jobs.TIER_KIND: passed_deadlines.meet_tier_job,
    windows.KIND: passed_deadlines.end_window_job,
    new_requests.DELIVER_MESSAGES: door_messages.deliver_messages,
    policy_schedules.KIND: policy_schedules.run_policies,
    stock.KIND: stock.measure_storage,
    prune_job.KIND: prune_job.prune_job,
    "rotate_keys": integrity.rotate_job,
    list_columns.SEND_NOTICES: delivery_jobs.send_notices,
    webhooks.SEND_WEBHOOK: delivery_jobs.send_webhook,
    "stamp_audit_log": time_stamps.stamp_head,
    "sweep_access": old_access.access_that_ended,
    "sweep_bulk_forks": bulk_fork.old_bulk_forks,
    "sweep_door_messages": door_messages.messages_that_are_old,
    "sweep_jobs": standing_jobs.jobs_that_ended,
    "sweep_memory": standing_jobs.memory_that_is_old,
    "sweep_notices": delivery_jobs.notices_that_are_old,
    "sweep_payloads": standing_jobs.payloads_without_a_row,
    "sweep_uploads": standing_jobs.uploads_without_a_run,
    "sweep_workers": standing_jobs.workers_that_left,
    "verify_runs": integrity.verify_job,
}
"""Our own kinds by name."""

MINUTE = 60.0
HOUR = 3600.0
DAY = 86_400.0
STANDING: dict[str, float] = {
    "anchor_heads": MINUTE,
    list_columns.SEND_NOTICES: MINUTE,
    "stamp_audit_log": HOUR,
    "sweep_access": DAY,
    "sweep_bulk_forks": DAY,
    "sweep_door_messages": DAY,
    "sweep_jobs": DAY,
    "sweep_memory": DAY,
    "sweep_notices": DAY,
    policy_schedules.KIND: DAY,
    stock.KIND: DAY,
    "sweep_payloads": DAY,
    "sweep_uploads": DAY,
    "sweep_workers": DAY,
}
"""Jobs of which every installation has one, and the seconds between two of their turns.
"""
FIRST_TURN = HOUR
"""Seconds until a standing job's first turn, at most."""

log = structlog.get_logger(__name__)


def ensure_standing() -> None:
    """Add the standing jobs that are missing. Called when a cluster registers itself;
    calling it again changes nothing.
    """
    for kind, seconds in STANDING.items():
        jobs.add_job(kind, name=kind, due_in=min(FIRST_TURN, seconds))


def run_job(job_id: UUID, epoch: int, *, draining: Callable[[], bool] = never) -> None:
    """Work one slice on one job. Does nothing if the lease is not, or no longer, this
    worker's. Raises `OpenTransaction`.
    """
    refuse_open_transaction("run_job")
    lease = jobs.begin_job(job_id, epoch)
    if lease is None:
        return

    def beat() -> bool:
        return jobs.heartbeat(lease.id, lease.epoch)

    try:
        with Heartbeat(lease, beat=beat) as heart:
            _attempt(lease, heart, draining)
    except StaleLease:
        log.info("lease_lost", job=str(job_id), epoch=lease.epoch)
    except Error as error:
        # Its lease runs out, and the next worker continues at its place.
        log.warning("database_failed", job=str(job_id), error=str(error))
        connection.close()


def advance(job_id: UUID) -> Job:
    """Claim the job and work on it here and now, until it ends or is not due. For
    commands and tests. Raises `OpenTransaction` inside a transaction of the caller,
    before anything is claimed.
    """
    refuse_open_transaction("jobs.advance")
    while epoch := jobs.claim_one(job_id):
        run_job(job_id, epoch)
    return Job.objects.get(id=job_id)


def _attempt(lease: JobLease, heart: Heartbeat, draining: Callable[[], bool]) -> None:
    """Work on the job, or end it if no worker of this version can."""
    kind = KINDS.get(lease.kind)
    again_in = STANDING.get(lease.kind)
    if kind is None:
        # A newer version may know the kind: its workers may take the job at the next
        # attempt.
        message = f"this worker knows no job of the kind {lease.kind!r}"
        _fail(lease, "unknown_kind", message)
        return
    if lease.attempts > jobs.MOST_ATTEMPTS:
        message = f"{lease.attempts - 1} workers began this job and got no further"
        _fail(lease, "poison", message, again_in=again_in)
        return
    try:
        _slice(lease, kind, heart, draining, again_in)
    except (StaleLease, Error):
        # The job is another worker's now, or the database failed: nothing can be
        # written about it here.
        raise
    except Forbidden as error:
        # The person who requested it has lost the right: another attempt would only be
        # refused again.
        _fail(lease, error.code, error.message, again_in=again_in, final=True)
    except Exception as error:
        log.exception("job_failed", job=str(lease.id), kind=lease.kind)
        code = "job_failed"
        if isinstance(error, CountersignError):
            code = error.code
        text = writable(described(error))
        _fail(lease, code, text, again_in=again_in)


def _fail(lease: JobLease, code: str, message: str, **how: Any) -> None:
    """End an attempt as `jobs.fail_job` does, and count it."""
    jobs.fail_job(lease, code, message, **how)
    work_sums.count("jobs_failed")


def _slice(
    lease: JobLease,
    kind: Kind,
    heart: Heartbeat,
    draining: Callable[[], bool],
    again_in: float | None,
) -> None:
    """Work on the job piece after piece until it ends or pauses, or the slice is over."""
    until = time.monotonic() + conf().slice_seconds
    for step in kind(lease):
        jobs.report(lease, step)
        if heart.lost.is_set():
            raise StaleLease("another worker has this job", job=str(lease.id))
        if step.pause or draining() or time.monotonic() > until:
            jobs.give_back(lease, pause=step.pause)
            return
    jobs.finish_job(lease, again_in=again_in)
