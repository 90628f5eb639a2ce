"""Cancelling a run: at once where nobody has it in hand; else it is asked for, and happens after the superstep in hand.

`runs.cancel` asks, under the run's lock; the runner and the settling conclude. An effect that may have happened comes
first: such a run is unknown, and cancelled when the last outcome is settled.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from approvals.gates.withdrawal import who_asked, withdraw_requests
from checkpoints import audit_log
from checkpoints.core.status import ENDS, Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import locked_run
from checkpoints.models import Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue import jobs, leases, notify
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task, registry
from orchestrator.engine.errors import InvalidValue, WrongStatus
from orchestrator.execution.open_superstep import safe_again

MOST_REASON = 10_000
_OVER = ENDS | {Status.TAMPERED}


def request_cancel(run: Run, *, by: Any, reason: str) -> None:
    """Ask that a locked run be cancelled; done at once where no worker has it. Asking again changes nothing.

    Raises `WrongStatus` for a run that ended in another way, or is tampered, and `InvalidValue` for an endless reason.
    """
    if len(reason) > MOST_REASON:
        raise InvalidValue(f"a reason has at most {MOST_REASON} characters", path="reason")
    if run.status == Status.CANCELLED or run.cancel_at:
        return
    if run.status in _OVER:
        raise WrongStatus(f"run {run.key} is {run.status}, so it cannot be cancelled", status=run.status)
    actor, at = by.get_username() if by else "", timezone.now()
    events = [
        NewEvent("cancel_requested", {"was": run.status, "reason": reason, "cancel_at": at.isoformat()}, actor=actor),
        *withdraw_requests(run.id),
    ]
    jobs.cancel_jobs_of(run.id)
    audit_log.record_act("cancelled", run, actor=by, seq=run.event_seq + 1)
    if leases.is_held(run.id):
        # The line alone makes the holder look; the wake keeps him from letting the run rest meanwhile.
        locked_run.append_locked(run, events, at=at, cancel_at=at, wakes=F("wakes") + 1)
        notify.notify_workers()
    else:
        run.cancel_at = at
        _conclude(run, events, actor=actor)


def conclude_cancel(run_id: UUID) -> None:
    """Cancel a run for which that was asked, if nobody has it in hand and no effect is unknown. One transaction."""
    wanted = Run.objects.filter(id=run_id, cancel_at__isnull=False)
    if wanted.exclude(status__in=_OVER).exists():
        with transaction.atomic():
            conclude_locked(locked_run.lock_run(run_id), [])


def conclude_locked(run: Run, events: Sequence[NewEvent]) -> None:
    """The same under the caller's lock; `events` come before."""
    if run.cancel_at and run.status not in _OVER and not leases.is_held(run.id):
        _conclude(run, [*events, *withdraw_requests(run.id)], actor=who_asked(run.id))


def _conclude(run: Run, events: Sequence[NewEvent], *, actor: str) -> None:
    lost = unsettled_attempts(run)
    if lost:
        _become_unknown(run, events, lost)
        return
    jobs.cancel_jobs_of(run.id)
    ending = [*locked_run.keep_head(run), NewEvent("run_cancelled", {}, actor=actor)]
    _turn(run, [*events, *ending], status=Status.CANCELLED, ended_at=timezone.now())


def _become_unknown(run: Run, events: Sequence[NewEvent], lost: Sequence[TaskResult]) -> None:
    if run.status == Status.UNKNOWN:
        locked_run.append_locked(run, events, at=timezone.now(), cancel_at=run.cancel_at)
        return
    for row in lost:
        journal.amend_result(row, protection_of(run), outcome=Outcome.UNKNOWN)
    named = ", ".join(row.task for row in lost)
    message = f"nobody wrote down whether {named} happened; the run is cancelled when that is settled"
    error = {"code": "outcome_unknown", "message": message, "node": lost[0].node, "task": lost[0].task}
    line = NewEvent("run_unknown", {"code": error["code"], "message": message})
    kept = sealed_rows.encrypted(run, "error", pack_json(error), protection_of(run))
    _turn(run, [*events, line], status=Status.UNKNOWN, error=kept, error_code=error["code"])


def _turn(run: Run, events: Sequence[NewEvent], *, status: Status, **values: Any) -> None:
    """Give the run its status. The epoch rises: a worker that was frozen past its lease finds it gone."""
    rest = {"epoch": F("epoch") + 1, "due_at": None, "lease_until": None, "leased_by": None, "progress": b""}
    cleared = {"error": b"", "error_code": "", "cancel_at": run.cancel_at}
    locked_run.append_locked(run, events, at=timezone.now(), **{**rest, **cleared, "status": status, **values})


def unsettled_attempts(run: Run) -> list[TaskResult]:
    """Attempts that may have acted, and of which nobody knows whether they did."""
    graph, outcomes = registry.find_graph(run.fingerprint), [Outcome.OPEN, Outcome.UNKNOWN]
    rows = TaskResult.objects.filter(run=run, line=run.line, seq__isnull=True, outcome__in=outcomes).order_by("id")
    tasks = [(row, Task(row.node, row.visit, row.index)) for row in rows]
    return [row for row, task in tasks if row.outcome == Outcome.UNKNOWN or not (graph and safe_again(graph, task))]
