"""Acts on a run by whoever is not its lease holder: signing, settling, cancelling, resuming.

Each locks the run's row, checks its seal, and appends its events in the transaction that is open. The verbs of floors 2
and 3 call this module; the lease holder commits by `checkpoints.ledger.commit`.
"""

import inspect
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db.models import F
from django.utils import timezone

from checkpoints import event_log
from checkpoints.core.status import ENDS, Status
from checkpoints.db.clock import db_now
from checkpoints.db.limits import within_limits
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger.run_error import error_columns
from checkpoints.models import Checkpoint, Run
from checkpoints.queue import notify
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError, UnknownThing, WrongStatus

log = structlog.get_logger(__name__)


def lock_run(run_id: UUID, *, also_imported: bool = False) -> Run:
    """The run's row, locked until the caller's transaction ends. Whoever is not its lease holder appends under this
    lock. Raises `UnknownThing`, and `TamperedRow` or `WrongKey` where it is not as it was sealed: the caller's new seal
    would cover that up; `WrongStatus` for an imported run, unless that is wanted too; `OperationalError` where
    somebody else keeps it locked.
    """
    run = within_limits(Run.objects.select_for_update().filter(id=run_id)).first()
    if run is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    run_row.verify_run_row(run)
    if run.imported and not also_imported:
        raise WrongStatus(f"run {run.key} was imported, so it can only be read and forked", status=run.status)
    return run


def append_locked(
    run: Run, events: Sequence[NewEvent], *, at: datetime, decisions: int | None = None, **values: Any
) -> int:
    """Close an act on a locked run: its lines and one UPDATE. `decisions`: how many it has now. Gives its last seq."""
    before = LogEnd(run.event_seq, run.event_hash)
    rows, end = event_log.chain(run.id, before, events, at=at, protection=protection_of(run))
    event_log.insert_events(rows)
    run.decisions = run.decisions if decisions is None else decisions
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(run, head=run.head, head_hash=run.head_hash, decisions=run.decisions, **log)
    Run.objects.filter(id=run.id).update(decisions=run.decisions, **log, **sealed, **values)
    run.event_seq, run.event_hash, run.seal, run.seal_key = end.seq, end.hash, sealed["seal"], sealed["seal_key"]
    return end.seq


def keep_head(run: Run) -> list[NewEvent]:
    """Let the head of a locked run stay in the timeline, for no other row will follow it. Gives the line that says so.

    Raises `TamperedRow` and `WrongKey` where its row does not verify.
    """
    head = Checkpoint.objects.filter(run=run.id, seq=run.head_seq, kept=False).first()
    if head is None:
        return []
    protection = protection_of(run)
    sealed_rows.verify_row(head, protection)
    names = sealed_rows.seal_again(head, protection, kept=True)
    Checkpoint.objects.filter(id=head.id).update(**{name: getattr(head, name) for name in names})
    return [NewEvent("checkpoint_kept", {"checkpoint": str(head.id), "superstep": head.superstep})]


def requeue_run(run: Run, *, events: Sequence[NewEvent], only: frozenset[str]) -> None:
    """Queue a locked, stopped run again. Raises `WrongStatus` where its status is not one of `only`."""
    if run.status not in only:
        raise WrongStatus(f"run {run.key} is {run.status}, not {' or '.join(sorted(only))}", status=run.status)
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


def mark_tampered(run_id: UUID, error: CountersignError, *, ended: bool = False) -> bool:
    """`stop_as_tampered` without a lease. A leased run is left to its holder. One that ended stays ended, unless runs
    that `ended` are meant too. Gives whether this marked it: one that was so already keeps what it was marked for.
    """
    run = Run.objects.only("encrypted", "hash_key", "graph", "key").filter(id=run_id).first()
    if run is None:
        return False
    details = {"code": error.code, "message": error.message, "cure": inspect.getdoc(type(error))}
    why = error_columns(run_id, details, protection_of(run))
    left = [Status.RUNNING, Status.TAMPERED, *(() if ended else ENDS)]
    rows = Run.objects.filter(id=run_id).exclude(status__in=left)
    marked = bool(rows.update(status=Status.TAMPERED, due_at=None, **why))
    if marked:
        log.error("run_tampered", run=str(run_id), key=run.key, graph=run.graph, code=error.code)
    return marked
