"""The worker's part of an erasure: the rows of a run erased table by table in batches,
and the event in the log that ends it. It goes on after a crash, for every piece can be
repeated.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.core.eraser import Eraser
from checkpoints.db.free_pages import wipe_free_pages
from checkpoints.erasure import erased_batches
from checkpoints.erasure.places import PLACES
from checkpoints.erasure.sweeps import SWEEPS, erase_orphans, eraser_of
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.memory import search as memory_search
from checkpoints.models import ErasedRow, ErasureRecord, Run
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.erasures import rows_digest
from checkpoints.verification.notes import ERASED, metadata_left
from orchestrator.engine.errors import TamperedRow

KIND = "erase_run"
"""The kind of the job."""


def erase_job(lease: JobLease) -> Iterator[Step]:
    """Do a job of the kind `erase_run`, for the record in its facts. Its place is a
    table and the last key that was done.
    """
    record = ErasureRecord.objects.get(id=UUID(lease.facts["record"]))
    if record.ended_at is None:
        yield from _erase_rows(record, lease)
    # Also after an interruption between the two: the values of the rows are then still
    # in the index and in free pages.
    memory_search.drop_removed_words()
    wipe_free_pages()


def _erase_rows(record: ErasureRecord, lease: JobLease) -> Iterator[Step]:
    run = Run.objects.get(id=record.run)
    data_keys.read_use_again(run.id)
    sealed_rows.verify_row(record, protection_of(run))
    eraser = eraser_of(record)
    # Jobs of older versions did not count the rows that were noted.
    start, after, noted = (*(lease.place or (0, None)), 0)[:3]
    done = int(lease.progress.get("done", 0))
    if start == 0:
        for sweep in SWEEPS:
            sweep.erase(run, record, eraser)
        _keep_files(run, record)

    # One table after the other; in the table where it stopped, after the last key.
    for number, place in enumerate(PLACES):
        if number < start:
            continue
        first = after if number == start else None
        table = place.model._meta.db_table
        for batch in erased_batches.erase_rows(place, record, eraser, first):
            done += batch.rows
            noted += batch.noted
            yield Step(done, note=table, place=(number, batch.after, noted))
    last = len(PLACES)
    first = after if start == last else None
    for batch in erased_batches.erase_checkpoints(record, eraser, first):
        done += batch.rows
        noted += batch.noted
        yield Step(done, note="checkpoints", place=(last, batch.after, noted))
    erase_orphans(run)
    _end(record, eraser, noted)


def _keep_files(run: Run, record: ErasureRecord) -> None:
    """Record the files that stay."""
    if record.kept_files:
        names = sealed_rows.seal_again(
            record, protection_of(run), kept_files=record.kept_files
        )
        values = {name: getattr(record, name) for name in names}
        ErasureRecord.objects.filter(id=record.id).update(**values)


def _require_noted(record: ErasureRecord, noted: int) -> None:
    """Raise `TamperedRow` if notes of rows that were erased are gone."""
    row_count = ErasedRow.objects.filter(record=record).count()
    if row_count < noted:
        message = (
            f"erasure {record.id} told of {noted} rows, of which {row_count} are left"
        )
        raise TamperedRow(message, run=str(record.run), row=sealed_rows.name_of(record))


def _end(record: ErasureRecord, eraser: Eraser, noted: int) -> None:
    """Erase the run's own row, end the record and append the event to the log, in one
    transaction. `noted` is the least number of rows that the record must have.
    """
    with transaction.atomic():
        run = locked_run.lock_run(record.run, also_imported=True)
        data_keys.read_use_again(run.id)
        record.refresh_from_db()
        if record.ended_at is not None:
            return
        # It was read again, and the seal that ends it would cover up a change that was
        # made to it in the meantime.
        sealed_rows.verify_row(record, protection_of(run))
        _require_noted(record, noted)
        erased_batches.erase_run_row(run, record, eraser)
        for sweep in SWEEPS:
            if sweep.again:
                sweep.erase(run, record, eraser)

        # The words are values themselves, so they go with the end of the work.
        rows, digest = rows_digest(record)
        ended: dict[str, Any] = {
            "rows": rows,
            "rows_hash": digest,
            "ended_at": timezone.now(),
            "words": b"",
            "kept_files": record.kept_files,
        }
        if not record.paths:
            erased_batches.require_own_key_unused(run)
            data_keys.destroy_data_key(run.id)
        names = sealed_rows.seal_again(record, protection_of(run), **ended)
        values = {name: getattr(record, name) for name in names}
        ErasureRecord.objects.filter(id=record.id).update(**values)

        facts: dict[str, Any] = {
            "record": str(record.id),
            "rows": rows,
            "rows_hash": digest,
        }
        remaining_metadata = metadata_left(run)
        if remaining_metadata:
            facts["metadata"] = remaining_metadata
        event = NewEvent(ERASED, facts, actor=record.by_name)
        locked_run.append_locked(run, [event], at=timezone.now())
        audit_log.record(
            "run_erased",
            actor=record.by,
            run=run.id,
            record=str(record.id),
            rows=rows,
            paths=len(record.paths),
            reason=record.reason,
        )
