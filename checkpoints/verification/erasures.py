"""What was erased of a run: its records, the rows that they tell of, and that these hold nothing else again."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.db.models import Model

from checkpoints.models import ErasedRow, ErasureRecord, MemoryTrace, Run, RunEvent, RunMetadata, TaskResult
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from checkpoints.verification.notes import ERASED

PAGE = 200


def erasures(subject: Subject) -> Iterator[Fault]:
    """Each record against its seal, its rows and the log; then each row of which something was erased."""
    run = subject.run
    records = list(ErasureRecord.objects.filter(run=run.id).order_by("at", "id"))
    if run.erasure != (records[-1].id if records else None):
        yield subject.fault(run, f"names {run.erasure} as its newest erasure, but its records do not")
    told = _told(subject)
    for record in records:
        fault = subject.seal_of(record) or _ended(subject, record, told)
        if fault is not None:
            yield fault
    for missing in sorted(told.keys() - {str(record.id) for record in records}):
        yield subject.gone(ErasureRecord, f"{run.id} {missing}")
    if records:
        yield from _restored(subject)


def _told(subject: Subject) -> dict[str, str]:
    """What the log says of records: the hash over their rows, by record."""
    told = {}
    for line in RunEvent.objects.filter(run=subject.run.id, type=ERASED):
        facts = facts_of(subject, line) if subject.seal_of(line) is None else None
        if facts is None:
            continue  # the log's own examiner names it
        told[str(facts["record"])] = str(facts["rows_hash"])
    return told


def _ended(subject: Subject, record: ErasureRecord, told: dict[str, str]) -> Fault | None:
    """The fault of a record that has ended and does not tell of the rows that it told of then."""
    if record.ended_at is None:
        return None
    if (record.rows, record.rows_hash) != rows_digest(record):
        return subject.fault(record, "tells of other rows than it did when it ended")
    if told.get(str(record.id)) != (record.origin_rows_hash or record.rows_hash):
        return subject.fault(record, "has no line in the log that says so")
    return None


def rows_digest(record: ErasureRecord) -> tuple[int, str]:
    """How many rows a record tells of, and the hash over their seals."""
    count, digest = 0, sha256()
    for seal in ErasedRow.objects.filter(record=record).order_by("id").values_list("seal", flat=True).iterator():
        count += 1
        digest.update(bytes(seal or b""))
    return count, digest.hexdigest()


def _restored(subject: Subject) -> Iterator[Fault]:
    """Rows that do not have the seal with which they were erased: somebody put back what they held."""
    by_table: dict[str, list[ErasedRow]] = {}
    for said in subject.erased.all_said():
        by_table.setdefault(said.table, []).append(said)
    models = {model._meta.db_table: model for model in apps.get_models()}
    for table, rows in by_table.items():
        model = models.get(table)
        if model is None or model is Run or not hasattr(model, "seal"):
            continue
        for first in range(0, len(rows), PAGE):
            yield from _page(subject, model, rows[first : first + PAGE])


def _page(subject: Subject, model: type[Model], said: list[ErasedRow]) -> Iterator[Fault]:
    there = model._base_manager.in_bulk([_key(model, one.row) for one in said])
    for one in said:
        row = there.get(_key(model, one.row))
        if row is None and model is RunMetadata:
            yield subject.gone(model, one.row)
        # Removed since, which the examiner of its table judges; or a trace that another run has written since.
        if row is None or (isinstance(row, MemoryTrace) and row.run != subject.run.id):
            continue
        if not _is_as_left(subject, row, one):
            what = f"{model._meta.db_table} {one.row}"
            reason = f"{what} is not as erasure {one.record_id} left it"
            yield Fault(str(subject.run.id), "", model._meta.db_table, what, reason)


def _key(model: type[Model], key: str) -> Any:
    return model._meta.pk.to_python(key)


def _is_as_left(subject: Subject, row: Any, said: ErasedRow) -> bool:
    """Whether a row has the seal that it was given; a result, that gets another when its thread ends, the content."""
    if bytes(row.seal or b"") == bytes(said.new_seal):
        return True
    if not isinstance(row, TaskResult) or subject.seal_of(row) is not None:
        return False
    return all(subject.is_hashed(row, name, subject.payload(row, name), "") for name in said.contents)
