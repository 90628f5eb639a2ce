"""Stops the runs of a restored copy of the database, which lacks what they did after
the copy was made. Each run that might continue by itself, or by a signature that was
given before, stops until a person has looked outside. `manage.py restored` calls this
module.
"""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from approvals.answers.windows import WINDOWED, put_off_windows
from approvals.deadlines import GRACE
from approvals.gates import deadline_jobs
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now, read_now
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import locked_run
from checkpoints.ledger.run_error import RESTORED, error_columns
from checkpoints.models import Job, Run, TaskResult
from checkpoints.models.job import JobStatus
from checkpoints.models.task_result import Outcome
from checkpoints.queue.queue import BACK
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.execution import cancellation

MOVING = (Status.QUEUED, Status.RUNNING, Status.WAITING, Status.PAUSED)
"""Statuses of runs that may have acted after the copy: a paused one may have been
signed.
"""
STANDING = (Status.FAILED, Status.UNKNOWN)
"""Statuses of runs that move no more by themselves, and in which people may decide."""
MORE_EPOCHS = 1_000_000
"""More than a run can have had claims since the copy was made: a worker that began a
lease since then finds it gone.
"""
LOOK = (
    "a copy of the database was put back, "
    "and what this run did after the copy was made is not in it;"
    " look outside before it goes on"
)


@frozen
class StoppedRuns:
    """The number of runs that were stopped, by their status now; and the runs that were
    left as they are, with the reason for each.
    """

    counts: dict[str, int]
    unverified: dict[str, str]


def end_leases() -> None:
    """End every lease that workers had when the copy was made, or have got since. A job
    that is paused stays paused.
    """
    epoch = F("epoch") + MORE_EPOCHS
    Run.objects.update(epoch=epoch, lease_until=None, leased_by=None)
    Job.objects.filter(status=JobStatus.QUEUED).update(epoch=epoch)
    Job.objects.filter(status=JobStatus.RUNNING).update(
        epoch=epoch, due_at=db_now(), **BACK
    )


def stop_runs(*, by: Any) -> StoppedRuns:
    """Stop each run that may have acted since the copy, each in its own transaction: as
    `unknown` if an intent is open, else as `failed`, so that a person settles or
    resumes it. `end_leases` has to be called before.

    A run with a request to cancel is cancelled. One that does not verify is left as it
    is, and named.
    """
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    # An imported run never moves.
    moving = Run.objects.filter(status__in=MOVING, imported=False).order_by("id")
    for run_id in list(moving.values_list("id", flat=True)):
        try:
            status = _stop(run_id, by=by)
        except CountersignError as error:
            # One run that cannot be stopped must not let the others go on.
            reasons[str(run_id)] = error.message
            continue
        counts[status] = counts.get(status, 0) + 1
    _give_people_time()
    return StoppedRuns(counts, reasons)


def _give_people_time() -> None:
    """Put off the deadlines, tiers and windows of runs that had stopped when the copy was made, by
    `GRACE` at least: people may have signed in the time that is missing, and silence
    acts in such a run too.
    """
    waiting = ApprovalRequest.objects.filter(
        deadline_jobs.TIMED | WINDOWED,
        status=RequestStatus.OPEN,
        run__status__in=STANDING,
        run__imported=False,
    ).exclude(run__error_code=RESTORED)
    for run_id in set(waiting.values_list("run", flat=True)):
        with transaction.atomic():
            locked_run.lock_run(run_id)
            earliest = read_now() + GRACE
            requests = waiting.filter(run=run_id)
            deadline_jobs.replace_jobs(run_id, requests, earliest=earliest)
            put_off_windows(run_id, earliest=earliest)


def _stop(run_id: UUID, *, by: Any) -> str:
    with transaction.atomic():
        run = locked_run.lock_run(run_id)
        # `end_leases` has freed it, so that it is cancelled at once.
        if run.cancel_at:
            cancellation.conclude_locked(run, [])
            return Run.objects.values_list("status", flat=True).get(id=run_id)
        # The time that is missing may have brought signatures; deadlines that came in it
        # decide nothing before a person has let the run go on.
        deadline_jobs.pause_jobs(run.id)
        attempts = _open_attempts(run)
        for row in attempts:
            journal.amend_result(row, protection_of(run), outcome=Outcome.UNKNOWN)
        status = Status.UNKNOWN if attempts else Status.FAILED
        _end(run, status, by=by)
        return str(status)


def _open_attempts(run: Run) -> list[TaskResult]:
    """Return the attempts that had begun when the copy was made. That includes those of
    idempotent nodes, because their keys may be forgotten outside by now.
    """
    without_result = (Outcome.OPEN, Outcome.UNKNOWN)
    rows = TaskResult.objects.filter(
        run=run, line=run.line, seq__isnull=True, outcome__in=without_result
    )
    return list(rows.order_by("id"))


def _end(run: Run, status: Status, *, by: Any) -> None:
    """Give the run this status, with an event in its log that gives the reason."""
    details = {"code": RESTORED, "message": LOOK}
    actor = by.get_username() if by else ""
    event = NewEvent(f"run_{status}", details, actor=actor)
    columns = error_columns(run.id, details, protection_of(run))
    locked_run.append_locked(
        run,
        [event],
        at=timezone.now(),
        status=status,
        due_at=None,
        lease_until=None,
        leased_by=None,
        progress=b"",
        **columns,
    )
