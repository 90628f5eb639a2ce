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

from approvals.gates.withdrawal import who_asked, withdraw
from checkpoints.core.status import ENDS, Status
from checkpoints.db.clock import db_now
from checkpoints.event_log import Draft
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.models import Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue import jobs, leases
from checkpoints.queue import notify as wakes
from checkpoints.sealing import sealed_rows as sealing
from checkpoints.sealing.sealed_columns import pack
from checkpoints.sealing.sealed_rows import cover_of
from orchestrator.engine import Task, registry
from orchestrator.engine.errors import InvalidValue, UnknownThing, WrongStatus
from orchestrator.execution.open_superstep import safe_again

MOST_REASON = 10_000
_OVER = ENDS | {Status.TAMPERED}


def request(run: Run, *, by: Any, reason: str) -> None:
    """Ask that a locked run be cancelled; done at once where no worker has it. Asking again changes nothing.

    Raises `WrongStatus` for a run that ended in another way, or is tampered, and `InvalidValue` for an endless reason.
    """
    if len(reason) > MOST_REASON:
        raise InvalidValue(f"a reason has at most {MOST_REASON} characters", path="reason")
    if run.status == Status.CANCELLED or run.cancel_at:
        return
    if run.status in _OVER:
        raise WrongStatus(f"run {run.key} is {run.status}, so it cannot be cancelled", status=run.status)
    actor = by.get_username() if by else ""
    lines = [Draft("cancel_requested", {"was": run.status, "reason": reason}, actor=actor), *withdraw(run.id)]
    jobs.cancel_of(run.id)
    if leases.is_held(run.id):
        # The line alone makes the holder look; the wake keeps him from letting the run rest meanwhile.
        ledger.write_lines(run, lines, at=timezone.now(), cancel_at=db_now(), wakes=F("wakes") + 1)
        wakes.ring()
    else:
        _conclude(run, lines, actor=actor)


def conclude(run_id: UUID) -> None:
    """Cancel a run for which that was asked, if nobody has it in hand and no effect is unknown. One transaction."""
    wanted = Run.objects.filter(id=run_id, cancel_at__isnull=False)
    if wanted.exclude(status__in=_OVER).exists():
        with transaction.atomic():
            conclude_locked(ledger.lock(run_id), [])


def conclude_locked(run: Run, lines: Sequence[Draft]) -> None:
    """The same under the caller's lock; `lines` come before."""
    if run.cancel_at and run.status not in _OVER and not leases.is_held(run.id):
        _conclude(run, [*lines, *withdraw(run.id)], actor=who_asked(run.id))


def _conclude(run: Run, lines: Sequence[Draft], *, actor: str) -> None:
    lost = _lost(run)
    if lost:
        _become_unknown(run, lines, lost)
        return
    jobs.cancel_of(run.id)
    ending = [*ledger.keep_head(run), Draft("run_cancelled", {}, actor=actor)]
    _turn(run, [*lines, *ending], status=Status.CANCELLED, ended_at=timezone.now())


def _become_unknown(run: Run, lines: Sequence[Draft], lost: Sequence[TaskResult]) -> None:
    if run.status == Status.UNKNOWN:
        ledger.write_lines(run, lines, at=timezone.now(), cancel_at=db_now())
        return
    for row in lost:
        journal.amend(row, cover_of(run), outcome=Outcome.UNKNOWN)
    named = ", ".join(row.task for row in lost)
    message = f"nobody wrote down whether {named} happened; the run is cancelled when that is settled"
    error = {"code": "outcome_unknown", "message": message, "node": lost[0].node, "task": lost[0].task}
    line = Draft("run_unknown", {"code": error["code"], "message": message})
    _turn(run, [*lines, line], status=Status.UNKNOWN, error=_locked(run, error), error_code=error["code"])


def _turn(run: Run, lines: Sequence[Draft], *, status: Status, **values: Any) -> None:
    """Give the run its status. The epoch rises: a worker that was frozen past its lease finds it gone."""
    rest = {"epoch": F("epoch") + 1, "due_at": None, "lease_until": None, "leased_by": None, "progress": b""}
    cleared = {"error": b"", "error_code": "", "cancel_at": db_now()}
    ledger.write_lines(run, lines, at=timezone.now(), **{**rest, **cleared, "status": status, **values})


def _locked(run: Run, error: dict[str, Any]) -> bytes:
    return sealing.locked(run, "error", pack(error), cover_of(run))


def _lost(run: Run) -> list[TaskResult]:
    """Attempts that may have acted, and of which nobody knows whether they did."""
    rows = TaskResult.objects.filter(
        run=run, line=run.line, seq__isnull=True, outcome__in=[Outcome.OPEN, Outcome.UNKNOWN]
    )
    return [row for row in rows.order_by("id") if row.outcome == Outcome.UNKNOWN or not _safe(run, row)]


def _safe(run: Run, row: TaskResult) -> bool:
    try:
        graph = registry.by_fingerprint(run.fingerprint)
    except UnknownThing:
        return False
    return safe_again(graph, Task(row.node, row.visit, row.index))
