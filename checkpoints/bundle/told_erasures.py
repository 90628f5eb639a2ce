"""The erasures of a run: in the manifest and the lines of its bundle, and as records in
the installation that imports it.

Rows have other seals here, so an imported record covers the rows that are here, and
keeps the hash that the log has.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.utils import timezone

from checkpoints.bundle.row_json import RowReader
from checkpoints.bundle.row_reader import People, row_of
from checkpoints.bundle.row_shapes import ERASURE
from checkpoints.models import ErasedRow, ErasureRecord, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN, protection_of
from checkpoints.verification.erasures import rows_digest
from orchestrator.engine.errors import KeyConflict, WrongStatus

Note = Mapping[str, Any]
"""The note beside a row from which something was erased: {record, columns: {payload
column: hash}}.
"""


def erasures_of(run: Run, reader: RowReader) -> list[dict[str, Any]]:
    """Return the erasures of a run for a manifest. Raises `WrongStatus` while one is
    under way.
    """
    records = list(ErasureRecord.objects.filter(run=run.id).order_by("at", "id"))
    if any(record.ended_at is None for record in records):
        raise WrongStatus(
            f"values of run {run.key} are being erased; export it when that has ended",
            run=str(run.id),
        )
    erasures = []
    for record in records:
        # The hash that the log has, which is that of the rows where the run is from.
        rows_hash = record.origin_rows_hash or record.rows_hash
        erasures.append({**reader.json_of(record), "rows_hash": rows_hash})
    return erasures


def records_in(manifest: Mapping[str, Any], people: People) -> list[ErasureRecord]:
    """Return the unsaved records of the erasures in a manifest. Raises `ValueError` if
    one is not as it must be.
    """
    encrypted = manifest["encrypted"] is True
    records: list[ErasureRecord] = []
    for erasure in manifest["erasures"]:
        record = row_of(
            ErasureRecord, erasure, encrypted=encrypted, people=people, shapes=ERASURE
        )
        records.append(record)
    for record in records:
        is_ended = record.ended_at is not None and not record.words
        if str(record.run) != manifest["run"] or not is_ended:
            raise ValueError(
                "the manifest tells of an erasure that has not ended, "
                "or of another run's"
            )
        record.origin_rows_hash = record.rows_hash
    return records


def keep_records(run: Run, records: Sequence[ErasureRecord]) -> None:
    """Insert the records of a run that is about to be inserted, and delete those that
    an earlier life of the run left here. Raises `KeyConflict` if values of the run were
    erased here since the bundle was written.
    """
    records_here = ErasureRecord.objects.filter(run=run.id)
    ids = [record.id for record in records]
    if records_here.exclude(id__in=ids).exists():
        message = (
            f"values of run {run.id} were erased here, and this bundle still has them"
        )
        raise KeyConflict(message, run=str(run.id))
    # The rows first, for they protect the record that they belong to.
    ErasedRow.objects.filter(run=run.id).delete()
    records_here.delete()
    # Sealed at the end, when the rows that they cover are here.
    ErasureRecord.objects.bulk_create(records)
    # The manifest lists them in order of time.
    run.erasure = ids[-1] if ids else None


def note_rows(run: Run, rows: Sequence[tuple[Model, Note | None]]) -> None:
    """Record which of these rows, which are here and sealed, have erased values."""
    erased_rows = [_erased_row(run, row, note) for row, note in rows if note]
    for erased_row in erased_rows:
        sealed_rows.seal(erased_row, PLAIN)
    ErasedRow.objects.bulk_create(erased_rows)


def _erased_row(run: Run, row: Any, note: Note) -> ErasedRow:
    return ErasedRow(
        record_id=UUID(note["record"]),
        run=run.id,
        table=row._meta.db_table,
        row=str(row.pk),
        new_seal=bytes(row.seal or b""),
        new_key=row.seal_key,
        contents=dict(note["columns"]),
        at=timezone.now(),
    )


def seal_records(run: Run, records: Sequence[ErasureRecord]) -> None:
    """Set the number of rows here that each record covers, and seal it, at the end."""
    for record in records:
        record.rows, record.rows_hash = rows_digest(record)
        sealed_rows.seal_and_encrypt([record], protection_of(run))
        record.save()
