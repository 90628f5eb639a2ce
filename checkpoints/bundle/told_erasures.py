"""What was erased of a run: as manifest and lines of a bundle tell it, and as it is kept where that is taken in.

Rows have other seals here, so an imported record tells of the rows that are here, and keeps the hash that the log says.
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
"""What the line of a row says of what was erased of it: {record, columns: {payload column: hash}}."""


def erasures_of(run: Run, reader: RowReader) -> list[dict[str, Any]]:
    """The erasures of a run for a manifest. Raises `WrongStatus` while one goes on."""
    records = list(ErasureRecord.objects.filter(run=run.id).order_by("at", "id"))
    if any(one.ended_at is None for one in records):
        raise WrongStatus(f"values of run {run.key} are being erased; export it when that has ended", run=str(run.id))
    return [{**reader.json_of(one), "rows_hash": one.origin_rows_hash or one.rows_hash} for one in records]


def records_in(manifest: Mapping[str, Any], people: People) -> list[ErasureRecord]:
    """The unsaved records that a manifest tells of. Raises `ValueError` where it does not say what it must."""
    encrypted = manifest["encrypted"] is True
    found = [
        row_of(ErasureRecord, said, encrypted=encrypted, people=people, shapes=ERASURE) for said in manifest["erasures"]
    ]
    for record in found:
        if str(record.run) != manifest["run"] or record.ended_at is None or record.words:
            raise ValueError("the manifest tells of an erasure that has not ended, or of another run's")
        record.origin_rows_hash = record.rows_hash
    return found


def keep_records(run: Run, records: Sequence[ErasureRecord]) -> None:
    """Insert the records of a run that is about to be inserted; what is left here of an earlier life of the run goes.
    Raises `KeyConflict` where the run was erased here since the bundle was written.
    """
    there = ErasureRecord.objects.filter(run=run.id)
    ids = [one.id for one in records]
    if there.exclude(id__in=ids).exists():
        message = f"values of run {run.id} were erased here, and this bundle still has them"
        raise KeyConflict(message, run=str(run.id))
    ErasedRow.objects.filter(run=run.id).delete()
    there.delete()
    ErasureRecord.objects.bulk_create(records)
    run.erasure = ids[-1] if ids else None


def note_rows(run: Run, rows: Sequence[tuple[Model, Note | None]]) -> None:
    """Write down, of rows that are here and sealed, those of which something was erased."""
    told = [_said(run, row, note) for row, note in rows if note]
    for one in told:
        sealed_rows.seal(one, PLAIN)
    ErasedRow.objects.bulk_create(told)


def _said(run: Run, row: Any, note: Note) -> ErasedRow:
    said = ErasedRow(record_id=UUID(note["record"]), run=run.id, table=row._meta.db_table, row=str(row.pk))
    said.new_seal, said.new_key = bytes(row.seal or b""), row.seal_key
    said.contents, said.at = dict(note["columns"]), timezone.now()
    return said


def seal_records(run: Run, records: Sequence[ErasureRecord]) -> None:
    """Say how many rows each tells of here, and seal it: the last step."""
    for record in records:
        record.rows, record.rows_hash = rows_digest(record)
        sealed_rows.seal_and_encrypt([record], protection_of(run))
        record.save()
