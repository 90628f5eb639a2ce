"""Legal holds on runs and pins on checkpoints: what a person says must stay, who said so, and why.

Each verb takes the run's row first, as a removal does, so of a hold and a removal that meet one comes first. Each
leaves a line in the audit log.
"""

from collections.abc import Iterable
from datetime import UTC
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints import audit_log
from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import uuid_of
from checkpoints.db.limits import within_limits
from checkpoints.models import Checkpoint, ErasureRecord, LegalHold, Pin, Run
from checkpoints.models.legal_hold import LONGEST_REASON
from checkpoints.retention.rights import require_manager
from checkpoints.sealing import sealed_rows
from checkpoints.verification.kept_by_people import hold_faults
from orchestrator.engine.errors import UnknownThing, WrongStatus


def is_held(run_ids: Iterable[UUID]) -> set[UUID]:
    """Those of the runs that are under a legal hold; empty for none. Whoever removes or erases asks under the lock of
    the runs' rows.

    A run counts as held, too, where the rows of its holds are not what the audit log says of them: somebody may have
    taken a hold away by SQL. Three queries.
    """
    runs = list(run_ids)
    held = set(LegalHold.objects.filter(run__in=runs, released_at=None).values_list("run", flat=True))
    return held | {UUID(fault.run) for fault in hold_faults(runs)}


def lock_unless_held(run: UUID) -> bool:
    """Lock a run's row, so that no hold comes over it before the caller's transaction ends. False where one is;
    nothing holds a run that is gone.
    """
    _row_locked(run)
    return not is_held([run])


def hold(run_id: UUID | str, reason: str, *, by: Any) -> LegalHold:
    """Put a run under a legal hold; `by` None is the system. Several holds may lie on one run, each with its reason.

    Raises `UnknownThing`, `InvalidValue` where there is no reason, `WrongStatus` while values of the run are being
    erased, and `Forbidden` for whoever may not manage retention, as each of these verbs does.
    """
    require_manager(by)
    run = uuid_of(run_id, "run")
    checked_text(reason, "reason", least=1, most=LONGEST_REASON)
    with transaction.atomic():
        _lock(run)
        require_not_being_erased(run)
        row = LegalHold(run=run, reason=reason, by=by, at=timezone.now())
        _insert(row)
        audit_log.record("run_held", actor=by, run=run, hold=row.id, reason=reason)
    return row


def require_not_being_erased(run: UUID) -> None:
    """Raise `WrongStatus` where an erasure of a run was begun and has not ended: a hold would not stop it."""
    record = ErasureRecord.objects.filter(run=run, ended_at=None).order_by("at", "id").first()
    if record is not None:
        key = Run.objects.filter(id=run).values_list("key", flat=True).first()
        since = f"{record.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        message = f"values of run {key} are being erased since {since}; nothing holds them any more"
        raise WrongStatus(message, run=str(run), record=str(record.id))


def release_hold(hold_id: int, *, by: Any, reason: str = "") -> bool:
    """End a hold; the audit log says why. False: it had ended before, or there is none. Raises `InvalidValue`,
    `Forbidden`, and `TamperedRow` or `WrongKey` where it is not as it was sealed.
    """
    return _end(LegalHold.objects.filter(id=hold_id), "hold_released", by, reason)


def pin(checkpoint_id: UUID | str, *, by: Any, reason: str = "") -> Pin:
    """Keep a checkpoint until it is unpinned; gives the pin that lies on it where one does. Raises `UnknownThing` where
    there is no such checkpoint in a timeline, `InvalidValue`, `Forbidden`.
    """
    require_manager(by)
    checkpoint = uuid_of(checkpoint_id, "checkpoint")
    checked_text(reason, "reason", most=LONGEST_REASON)
    named = Checkpoint.objects.filter(id=checkpoint, kept=True)
    with transaction.atomic():
        run = named.values_list("run", flat=True).first()
        if run is not None:
            _lock(run)
            run = named.values_list("run", flat=True).first()
        if run is None:
            raise UnknownThing(f"there is no checkpoint {checkpoint}", checkpoint=str(checkpoint))
        there = Pin.objects.filter(checkpoint=checkpoint, released_at=None).first()
        if there is not None:
            return there
        row = Pin(checkpoint=checkpoint, run=run, reason=reason, by=by, at=timezone.now())
        _insert(row)
        audit_log.record("checkpoint_pinned", actor=by, run=run, checkpoint=str(checkpoint), reason=reason)
    return row


def unpin(checkpoint_id: UUID | str, *, by: Any, reason: str = "") -> bool:
    """Take the pin from a checkpoint; the audit log says why. False: there is none. Raises `InvalidValue`,
    `Forbidden`.
    """
    checkpoint = uuid_of(checkpoint_id, "checkpoint")
    return _end(Pin.objects.filter(checkpoint=checkpoint), "checkpoint_unpinned", by, reason)


def _end(rows: Any, kind: str, by: Any, reason: str) -> bool:
    require_manager(by)
    checked_text(reason, "reason", most=LONGEST_REASON)
    with transaction.atomic():
        row = rows.filter(released_at=None).first()
        ended = row is not None and _ended(rows, row, by)
        if ended:
            what = {"checkpoint": str(row.checkpoint)} if isinstance(row, Pin) else {"hold": row.id}
            audit_log.record(kind, actor=by, run=row.run, reason=reason, **what)
    return ended


def _insert(row: LegalHold | Pin) -> None:
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save(force_insert=True)


def _ended(rows: Any, row: LegalHold | Pin, by: Any) -> bool:
    """End a hold or a pin that is as it was sealed. False where somebody else ended it first."""
    sealed_rows.verify_row(row, sealed_rows.PLAIN)
    names = sealed_rows.seal_again(row, sealed_rows.PLAIN, released_at=timezone.now(), released_by=by)
    return bool(rows.filter(id=row.id, released_at=None).update(**{name: getattr(row, name) for name in names}))


def _row_locked(run: UUID) -> Run | None:
    found: Run | None = within_limits(Run.objects.select_for_update().filter(id=run).only("id")).first()
    return found


def _lock(run: UUID) -> None:
    if _row_locked(run) is None:
        raise UnknownThing(f"there is no run {run}", run=str(run))
