"""Acts on a run that is not leased to the caller: signing, settling, cancelling,
resuming.

Each locks the run's row, checks its seal, and appends its events in the transaction
that is open. The verbs of floors 2 and 3 call this module; the lease holder commits by
`checkpoints.ledger.commit`.
"""

import inspect
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db.models import F, QuerySet
from django.utils import timezone

from checkpoints import event_log
from checkpoints.core import work_sums
from checkpoints.core.status import ENDS, Status
from checkpoints.db import query_cache
from checkpoints.db.clock import db_now
from checkpoints.db.limits import lock_limits, within_given_limits
from checkpoints.db.query_cache import select_locked
from checkpoints.db.statements import update_rows
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger.run_error import error_columns
from checkpoints.models import Checkpoint, Run
from checkpoints.queue import notify
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    CountersignError,
    OlderSeal,
    UnknownThing,
    WrongStatus,
)

log = structlog.get_logger(__name__)


def lock_run(run_id: UUID, *, also_imported: bool = False) -> Run:
    """Return the run's row, locked until the caller's transaction ends. Everybody but
    its lease holder appends under this lock.

    Raises `UnknownThing`; `TamperedRow` or `WrongKey` if it does not match its seal,
    for the caller's new seal would cover that up; `WrongStatus` for an imported run,
    unless `also_imported`; `OperationalError` if another transaction keeps it locked.
    """
    # A worker that freezes during its commit must not keep a person waiting for the
    # lock.
    rows = select_locked(Run, _query_locked, run_id, *lock_limits())
    if not rows:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    run = rows[0]
    run_row.verify_run_row(run)
    if run.imported and not also_imported:
        raise WrongStatus(
            f"run {run.key} was imported, so it can only be read and forked",
            status=run.status,
        )
    return run


def _query_locked(run: UUID, lock_limit: str, idle_limit: str) -> "QuerySet[Run]":
    rows = Run.objects.select_for_update().filter(id=run).order_by()
    return within_given_limits(rows, lock_limit, idle_limit)


def append_locked(
    run: Run,
    events: Sequence[NewEvent],
    *,
    at: datetime,
    decisions: int | None = None,
    **values: Any,
) -> int:
    """Close an act on a locked run: its events and one UPDATE. `decisions` is the
    number it has now, if that changed. Returns the seq of the last event.
    """
    before = LogEnd(run.event_seq, run.event_hash)
    rows, end = event_log.chain(
        run.id, before, events, at=at, protection=protection_of(run)
    )
    event_log.insert_events(rows)

    # The seal covers the end of the log and the number of decisions.
    if decisions is not None:
        run.decisions = decisions
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(
        run, head=run.head, head_hash=run.head_hash, decisions=run.decisions, **log
    )
    update_rows(Run, {"id": run.id}, decisions=run.decisions, **log, **sealed, **values)

    # The caller may append again under the same lock.
    run.event_seq = end.seq
    run.event_hash = end.hash
    run.seal = sealed["seal"]
    run.seal_key = sealed["seal_key"]
    return end.seq


def keep_head(run: Run) -> list[NewEvent]:
    """Make the head of a locked run stay in the timeline, because no other row will
    follow it. Returns a list of the event that says so, empty if it stays anyway.

    Raises `TamperedRow` and `WrongKey` if its row does not verify.
    """
    rows = query_cache.select(Checkpoint, _query_of_recovery, run.id, run.head_seq)
    if not rows:
        return []
    head = rows[0]
    protection = protection_of(run)
    # A new seal on a row that was changed would cover that up.
    sealed_rows.verify_row(head, protection)
    names = sealed_rows.seal_again(head, protection, kept=True)
    values = {name: getattr(head, name) for name in names}
    Checkpoint.objects.filter(id=head.id).update(**values)
    facts = {"checkpoint": str(head.id), "superstep": head.superstep}
    return [NewEvent("checkpoint_kept", facts)]


def _query_of_recovery(run: UUID, seq: int) -> "QuerySet[Checkpoint]":
    return Checkpoint.objects.filter(run=run, seq=seq, kept=False).order_by()


def requeue_run(run: Run, *, events: Sequence[NewEvent], only: frozenset[str]) -> None:
    """Queue a locked, stopped run again. Raises `WrongStatus` if its status is not one
    of `only`.
    """
    if run.status not in only:
        raise WrongStatus(
            f"run {run.key} is {run.status}, not {' or '.join(sorted(only))}",
            status=run.status,
        )
    append_locked(
        run,
        events,
        at=timezone.now(),
        status=Status.QUEUED,
        due_at=db_now(),
        claims_since_progress=0,
        error=b"",
        error_code="",
        wakes=F("wakes") + 1,
    )
    notify.notify_workers()


def mark_tampered(
    run_id: UUID,
    error: CountersignError,
    *,
    ended: bool = False,
) -> bool:
    """Mark a run as tampered, as `stop_as_tampered` does with a lease. A leased run is
    left to its holder. A run that ended stays ended, unless `ended` includes those too.
    Returns whether this call marked it: a run that was marked before keeps the reason
    for it.
    """
    # Nothing is wrong with a run whose rows only wait to be resealed.
    if isinstance(error, OlderSeal):
        return False
    rows = Run.objects.filter(id=run_id)
    run = rows.only("encrypted", "hash_key", "graph", "key").first()
    if run is None:
        return False
    details = {
        "code": error.code,
        "message": error.message,
        "cure": " ".join((inspect.getdoc(type(error)) or "").split()),
    }
    why = error_columns(run_id, details, protection_of(run))
    unmarked_statuses = [Status.RUNNING, Status.TAMPERED]
    if not ended:
        unmarked_statuses += ENDS
    # Checked by the UPDATE itself: without a lock a worker may claim the run by now.
    to_mark = rows.exclude(status__in=unmarked_statuses)
    marked = bool(to_mark.update(status=Status.TAMPERED, due_at=None, **why))
    if marked:
        work_sums.count("runs_tampered")
        log.error(
            "run_tampered",
            run=str(run_id),
            key=run.key,
            graph=run.graph,
            code=error.code,
        )
    return marked
