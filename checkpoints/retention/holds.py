"""Puts legal holds on runs and pins on checkpoints, which keep their rows from being
removed, and ends them.

Each verb locks the run's row first, as a removal does, so a hold and a removal that
meet happen one after the other. Each adds a line to the audit log.
"""

from collections.abc import Iterable
from datetime import UTC
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints.audit import lines as audit_log
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
    """Return those of the runs that are under a legal hold. Removals and erasures call
    it under the lock of the runs' rows. Three queries.
    """
    runs = list(run_ids)
    holds = LegalHold.objects.filter(run__in=runs, released_at=None)
    held = set(holds.values_list("run", flat=True))
    # If the rows do not agree with the audit log, a hold may have been deleted by SQL.
    for fault in hold_faults(runs):
        held.add(UUID(fault.run))
    return held


def lock_unless_held(run: UUID) -> bool:
    """Lock a run's row, so that no hold is put on it before the caller's transaction
    ends. Return whether it is free of holds, as a run is that is gone.
    """
    _lock_row(run)
    return not is_held([run])


def hold(run_id: UUID | str, reason: str, *, by: Any) -> LegalHold:
    """Put a run under a legal hold; `by` None is the system. A run may have several
    holds, each with its reason.

    Raises `UnknownThing`, `InvalidValue` if there is no reason, `WrongStatus` while
    values of the run are being erased, and, like each of these verbs, `Forbidden` for a
    person who may not manage retention.
    """
    require_manager(by)
    run = uuid_of(run_id, "run")
    checked_text(reason, "reason", least=1, most=LONGEST_REASON)
    with transaction.atomic():
        _lock(run)
        require_not_being_erased(run)
        row = LegalHold(
            run=run,
            reason=reason,
            by=by,
            at=timezone.now(),
        )
        _insert(row)
        audit_log.record("run_held", actor=by, run=run, hold=row.id, reason=reason)
    return row


def require_not_being_erased(run: UUID) -> None:
    """Raise `WrongStatus` while an erasure of a run is under way: a hold would not stop
    it.
    """
    records = ErasureRecord.objects.filter(run=run, ended_at=None)
    record = records.order_by("at", "id").first()
    if record is None:
        return
    key = Run.objects.filter(id=run).values_list("key", flat=True).first()
    since = f"{record.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    raise WrongStatus(
        f"values of run {key} are being erased since {since};"
        " nothing holds them any more",
        run=str(run),
        record=str(record.id),
    )


def release_hold(hold_id: int, *, by: Any, reason: str = "") -> bool:
    """End a hold; the audit log records why. Return False if it had ended before, or
    there is none. Raises `InvalidValue`, `Forbidden`, and `TamperedRow` or `WrongKey`
    if it does not match its seal.
    """
    return _end(LegalHold.objects.filter(id=hold_id), "hold_released", by, reason)


def pin(checkpoint_id: UUID | str, *, by: Any, reason: str = "") -> Pin:
    """Keep a checkpoint until it is unpinned. Return the pin, which may exist already.
    Raises `UnknownThing` if there is no such checkpoint in a timeline, `InvalidValue`,
    `Forbidden`.
    """
    row, _ = pin_or_find(checkpoint_id, by=by, reason=reason)
    return row


def pin_or_find(
    checkpoint_id: UUID | str, *, by: Any, reason: str = ""
) -> tuple[Pin, bool]:
    """Return the pin of `pin`, and whether this call made it."""
    require_manager(by)
    checkpoint = uuid_of(checkpoint_id, "checkpoint")
    checked_text(reason, "reason", most=LONGEST_REASON)
    rows = Checkpoint.objects.filter(id=checkpoint, kept=True)
    runs = rows.values_list("run", flat=True)
    with transaction.atomic():
        run = runs.first()
        # The checkpoint may be removed before the lock is there, but not under it.
        if run is not None:
            _lock(run)
            run = runs.first()
        if run is None:
            raise UnknownThing(
                f"there is no checkpoint {checkpoint}", checkpoint=str(checkpoint)
            )
        pins = Pin.objects.filter(checkpoint=checkpoint, released_at=None)
        # One `unpin` ends one pin, so a second one would keep the checkpoint.
        earlier_pin = pins.first()
        if earlier_pin is not None:
            return earlier_pin, False
        row = Pin(
            checkpoint=checkpoint,
            run=run,
            reason=reason,
            by=by,
            at=timezone.now(),
        )
        _insert(row)
        audit_log.record(
            "checkpoint_pinned",
            actor=by,
            run=run,
            checkpoint=str(checkpoint),
            reason=reason,
        )
    return row, True


def unpin(checkpoint_id: UUID | str, *, by: Any, reason: str = "") -> bool:
    """Take the pin from a checkpoint; the audit log records why. Return False if
    there is none. Raises `InvalidValue`, `Forbidden`.
    """
    checkpoint = uuid_of(checkpoint_id, "checkpoint")
    pins = Pin.objects.filter(checkpoint=checkpoint)
    return _end(pins, "checkpoint_unpinned", by, reason)


def _end(rows: Any, kind: str, by: Any, reason: str) -> bool:
    """End the hold or the pin among these rows that has not ended. Return False if
    there is none.
    """
    require_manager(by)
    checked_text(reason, "reason", most=LONGEST_REASON)
    rows = rows.filter(released_at=None)
    with transaction.atomic():
        run = rows.values_list("run", flat=True).first()
        if run is None:
            return False
        # Nobody is given a pin that is being taken away at the same time.
        _lock_row(run)
        row = rows.first()
        if row is None or not _release(rows, row, by):
            return False
        facts: dict[str, Any] = {"hold": row.id}
        if isinstance(row, Pin):
            facts = {"checkpoint": str(row.checkpoint)}
        audit_log.record(kind, actor=by, run=row.run, reason=reason, **facts)
    return True


def _insert(row: LegalHold | Pin) -> None:
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save(force_insert=True)


def _release(rows: Any, row: LegalHold | Pin, by: Any) -> bool:
    """End a hold or a pin that matches its seal. Return False if another process ended
    it first.
    """
    # The new seal would cover up a change that was made to the row.
    sealed_rows.verify_row(row, sealed_rows.PLAIN)
    names = sealed_rows.seal_again(
        row,
        sealed_rows.PLAIN,
        released_at=timezone.now(),
        released_by=by,
    )
    values = {name: getattr(row, name) for name in names}
    # The row was read without a lock: if two people end it at once, one of them changes
    # no row.
    unreleased = rows.filter(id=row.id, released_at=None)
    return bool(unreleased.update(**values))


def _lock_row(run: UUID) -> Run | None:
    rows = Run.objects.select_for_update().filter(id=run)
    # A page must answer, including where a removal has hung with the lock.
    row: Run | None = within_limits(rows.only("id")).first()
    return row


def _lock(run: UUID) -> None:
    if _lock_row(run) is None:
        raise UnknownThing(f"there is no run {run}", run=str(run))
