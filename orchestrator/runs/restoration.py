"""What a restored copy of the database does not know: what its runs did after the copy was made. Each run that might go
on by itself, or by a signature that was given before, stops until a person has looked outside. `manage.py restored`
calls it.
"""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import locked_run
from checkpoints.ledger.run_error import error_columns
from checkpoints.models import Job, Run, TaskResult
from checkpoints.models.job import JobStatus
from checkpoints.models.task_result import Outcome
from checkpoints.queue.queue import BACK
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.execution import cancellation

CODE = "database_restored"
MOVING = (Status.QUEUED, Status.RUNNING, Status.WAITING, Status.PAUSED)
"""Statuses of runs that may have acted after the copy: a paused one may have been signed."""
MORE_EPOCHS = 1_000_000
"""More than a run had claims since the copy: a worker that began one then finds its lease gone."""
LOOK = (
    "a copy of the database was put back, and what this run did after the copy was made is not in it;"
    " look outside before it goes on"
)


@frozen
class StoppedRuns:
    """How many runs stopped, by the status that they have now; and those that were left, with the reason of each."""

    counts: dict[str, int]
    left: dict[str, str]


def end_leases() -> None:
    """Take every lease from the workers that had it when the copy was made, or got it since. A job that is paused
    stays so.
    """
    epoch = F("epoch") + MORE_EPOCHS
    Run.objects.update(epoch=epoch, lease_until=None, leased_by=None)
    Job.objects.filter(status=JobStatus.QUEUED).update(epoch=epoch)
    Job.objects.filter(status=JobStatus.RUNNING).update(epoch=epoch, due_at=db_now(), **BACK)


def stop_runs(*, by: Any) -> StoppedRuns:
    """Stop each run that may have acted since the copy, in a transaction of its own: as `unknown` where an intent is
    open, as `failed` where none is, so that a person settles or resumes it. `end_leases` comes before.

    One that somebody asked to cancel is cancelled. One that does not verify is left and named.
    """
    counts: dict[str, int] = {}
    left: dict[str, str] = {}
    moving = Run.objects.filter(status__in=MOVING, imported=False).order_by("id")
    for run_id in list(moving.values_list("id", flat=True)):
        try:
            status = _stop(run_id, by=by)
        except CountersignError as error:
            left[str(run_id)] = error.message
            continue
        counts[status] = counts.get(status, 0) + 1
    return StoppedRuns(counts, left)


def _stop(run_id: UUID, *, by: Any) -> str:
    with transaction.atomic():
        run = locked_run.lock_run(run_id)
        if run.cancel_at:
            cancellation.conclude_locked(run, [])
            return Run.objects.values_list("status", flat=True).get(id=run_id)
        lost = _open_attempts(run)
        for row in lost:
            journal.amend_result(row, protection_of(run), outcome=Outcome.UNKNOWN)
        return _end(run, lost, by=by)


def _open_attempts(run: Run) -> list[TaskResult]:
    """Return the attempts that had begun when the copy was made; idempotent ones too, for their keys may be forgotten
    outside by now.
    """
    maybe = (Outcome.OPEN, Outcome.UNKNOWN)
    rows = TaskResult.objects.filter(run=run, line=run.line, seq__isnull=True, outcome__in=maybe)
    return list(rows.order_by("id"))


def _end(run: Run, lost: list[TaskResult], *, by: Any) -> str:
    """Give the run its status, with the line of its log that says why."""
    status = Status.UNKNOWN if lost else Status.FAILED
    details = {"code": CODE, "message": LOOK}
    actor = by.get_username() if by else ""
    line = NewEvent(f"run_{status}", details, actor=actor)
    columns = error_columns(run.id, details, protection_of(run))
    rest: dict[str, Any] = {"due_at": None, "lease_until": None, "leased_by": None, "progress": b""}
    locked_run.append_locked(run, [line], at=timezone.now(), status=status, **rest, **columns)
    return str(status)
