"""Cancelling a run: at once if no worker has it in hand; else it is requested, and
happens after the current superstep.

`runs.cancel` requests it, under the run's lock; the runner and the settling of outcomes
carry it out. An effect that may have happened comes first: such a run is unknown, and
is cancelled when the last outcome is settled.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from approvals.gates.withdrawal import who_asked, withdraw_requests
from checkpoints.audit import lines as audit_log
from checkpoints.core.status import ENDS, Status
from checkpoints.db import query_cache
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
from orchestrator.execution.stop_log import log_end, log_stop

MOST_REASON = 10_000
_OVER = ENDS | {Status.TAMPERED}
"""Statuses of runs that can no longer be cancelled."""


def request_cancel(run: Run, *, by: Any, reason: str) -> None:
    """Request that a locked run be cancelled; if no worker has it, it is cancelled at
    once. A second request changes nothing.

    Raises `WrongStatus` for a run that ended in another way, or is tampered, and
    `InvalidValue` for a reason that is too long.
    """
    if len(reason) > MOST_REASON:
        raise InvalidValue(
            f"a reason has at most {MOST_REASON} characters", path="reason"
        )
    # Before the check of the status: a second request is no error.
    if run.status == Status.CANCELLED or run.cancel_at:
        return
    if run.status in _OVER:
        raise WrongStatus(
            f"run {run.key} is {run.status}, so it cannot be cancelled",
            status=run.status,
        )
    actor = by.get_username() if by else ""
    at = timezone.now()
    events = [
        NewEvent(
            "cancel_requested",
            {"was": run.status, "reason": reason, "cancel_at": at.isoformat()},
            actor=actor,
        ),
        *withdraw_requests(run.id),
    ]
    jobs.cancel_jobs_of(run.id)
    audit_log.record_act("cancelled", run, actor=by, seq=run.event_seq + 1)
    if leases.is_held(run.id):
        # The event makes the worker look for a request to cancel; the wake keeps it
        # from letting the run rest in the meantime.
        locked_run.append_locked(run, events, at=at, cancel_at=at, wakes=F("wakes") + 1)
        notify.notify_workers()
    else:
        run.cancel_at = at
        _conclude(run, events, actor=actor)


def conclude_cancel(run_id: UUID) -> None:
    """Cancel a run for which that was requested, if no worker has it in hand and no
    effect is unknown. One transaction.
    """
    requested = Run.objects.filter(id=run_id, cancel_at__isnull=False)
    if requested.exclude(status__in=_OVER).exists():
        with transaction.atomic():
            conclude_locked(locked_run.lock_run(run_id), [])


def conclude_locked(run: Run, events: Sequence[NewEvent]) -> None:
    """Cancel a run as `conclude_cancel` does, if the caller has locked it. `events` are
    written first.
    """
    if run.cancel_at and run.status not in _OVER and not leases.is_held(run.id):
        _conclude(run, [*events, *withdraw_requests(run.id)], actor=who_asked(run.id))


def _conclude(run: Run, events: Sequence[NewEvent], *, actor: str) -> None:
    unsettled = unsettled_attempts(run)
    if unsettled:
        _become_unknown(run, events, unsettled)
        return
    jobs.cancel_jobs_of(run.id)
    # The end stays in the timeline, and the head may be a mere recovery point.
    ending = [*locked_run.keep_head(run), NewEvent("run_cancelled", {}, actor=actor)]
    _change_status(
        run, [*events, *ending], status=Status.CANCELLED, ended_at=timezone.now()
    )
    transaction.on_commit(partial(log_end, run, Status.CANCELLED))


def _become_unknown(
    run: Run, events: Sequence[NewEvent], lost: Sequence[TaskResult]
) -> None:
    # The run has its error already; only the request to cancel is new.
    if run.status == Status.UNKNOWN:
        locked_run.append_locked(
            run, events, at=timezone.now(), cancel_at=run.cancel_at
        )
        return
    for row in lost:
        journal.amend_result(row, protection_of(run), outcome=Outcome.UNKNOWN)
    tasks = ", ".join(row.task for row in lost)
    message = (
        f"nobody wrote down whether {tasks} happened; "
        "the run is cancelled when that is settled"
    )
    error = {
        "code": "outcome_unknown",
        "message": message,
        "node": lost[0].node,
        "task": lost[0].task,
    }
    event = NewEvent("run_unknown", {"code": error["code"], "message": message})
    _change_status(
        run,
        [*events, event],
        status=Status.UNKNOWN,
        error=sealed_rows.encrypted(run, "error", pack_json(error), protection_of(run)),
        error_code=error["code"],
    )
    transaction.on_commit(partial(log_stop, run, Status.UNKNOWN, error))


def _change_status(
    run: Run, events: Sequence[NewEvent], *, status: Status, **values: Any
) -> None:
    """Give the run this status, without an error unless `values` have one. The epoch
    rises, so that a worker that was frozen past its lease finds the lease gone.
    """
    columns: dict[str, Any] = {
        "epoch": F("epoch") + 1,
        "due_at": None,
        "lease_until": None,
        "leased_by": None,
        "progress": b"",
        "error": b"",
        "error_code": "",
        "cancel_at": run.cancel_at,
        "status": status,
        **values,
    }
    locked_run.append_locked(run, events, at=timezone.now(), **columns)


def _query_unsettled(run: UUID, line: int) -> "QuerySet[TaskResult]":
    without_result = [Outcome.OPEN, Outcome.UNKNOWN]
    rows = TaskResult.objects.filter(
        run=run, line=line, seq__isnull=True, outcome__in=without_result
    )
    return rows.order_by("id")


def unsettled_attempts(run: Run) -> list[TaskResult]:
    """Return the attempts that may have acted, without anyone knowing whether they
    did.
    """
    graph = registry.find_graph(run.fingerprint)
    unsettled: list[TaskResult] = []
    for row in query_cache.select(TaskResult, _query_unsettled, run.id, run.line):
        # Without its graph it is unknown whether an attempt may simply be repeated.
        if row.outcome == Outcome.OPEN and graph is not None:
            task = Task(row.node, row.visit, row.index)
            if safe_again(graph, task):
                continue
        unsettled.append(row)
    return unsettled
