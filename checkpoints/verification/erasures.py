"""Examines what was erased of a run: its records, the rows that they name, and that
these rows hold nothing else again.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.db.models import Model

from checkpoints.models import (
    ErasedRow,
    ErasureRecord,
    MemoryTrace,
    Run,
    RunEvent,
    RunMetadata,
    TaskResult,
)
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from checkpoints.verification.notes import ERASED

PAGE = 200


def erasures(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of each record (its seal, its rows, its line in the log), then
    of each row from which something was erased.
    """
    run = subject.run
    records = list(ErasureRecord.objects.filter(run=run.id).order_by("at", "id"))
    newest = records[-1].id if records else None
    if run.erasure != newest:
        yield subject.fault(
            run, f"names {run.erasure} as its newest erasure, but its records do not"
        )
    logged_hashes = _logged_hashes(subject)
    for record in records:
        fault = subject.seal_of(record) or _other_rows(subject, record, logged_hashes)
        if fault is not None:
            yield fault
    stored_ids = {str(record.id) for record in records}
    for missing_id in sorted(logged_hashes.keys() - stored_ids):
        yield subject.missing_row(ErasureRecord, f"{run.id} {missing_id}")
    if records:
        yield from _faults_of_erased_rows(subject)


def _logged_hashes(subject: Subject) -> dict[str, str]:
    """Return the hash over the rows of each record that the log names, by its id."""
    hashes = {}
    for line in RunEvent.objects.filter(run=subject.run.id, type=ERASED):
        # The log's own examiner names a line that does not match its seal, or that
        # cannot be read.
        if subject.seal_of(line) is not None:
            continue
        facts = facts_of(subject, line)
        if facts is not None:
            hashes[str(facts["record"])] = str(facts["rows_hash"])
    return hashes


def _other_rows(
    subject: Subject, record: ErasureRecord, logged_hashes: dict[str, str]
) -> Fault | None:
    """Return the fault of a record that has ended and now names other rows, or is
    missing in the log.
    """
    # Rows are still added to an erasure that is under way.
    if record.ended_at is None:
        return None
    if (record.rows, record.rows_hash) != rows_digest(record):
        return subject.fault(record, "lists other rows than when it ended")
    # The record of an imported run has its own hash here, and keeps the logged one.
    expected_hash = record.origin_rows_hash or record.rows_hash
    if logged_hashes.get(str(record.id)) != expected_hash:
        return subject.fault(record, "has no line in the log that says so")
    return None


def rows_digest(record: ErasureRecord) -> tuple[int, str]:
    """Return how many rows a record names, and the hash over their seals."""
    rows = ErasedRow.objects.filter(record=record).order_by("id")
    count = 0
    digest = sha256()
    for seal in rows.values_list("seal", flat=True).iterator():
        count += 1
        digest.update(bytes(seal or b""))
    return count, digest.hexdigest()


def _faults_of_erased_rows(subject: Subject) -> Iterator[Fault]:
    """Yield a fault for each row without the seal that its erasure gave it: what it
    held was put back.
    """
    notes_by_table: dict[str, list[ErasedRow]] = {}
    for note in subject.erased.all_said():
        notes_by_table.setdefault(note.table, []).append(note)
    models = {model._meta.db_table: model for model in apps.get_models()}
    for table, notes in notes_by_table.items():
        model = models.get(table)
        # The run's own row has a seal of another kind, and a separate examiner.
        if model is None or model is Run or not hasattr(model, "seal"):
            continue
        for start in range(0, len(notes), PAGE):
            yield from _faults_of_page(subject, model, notes[start : start + PAGE])


def _faults_of_page(
    subject: Subject, model: type[Model], notes: list[ErasedRow]
) -> Iterator[Fault]:
    """Yield the faults of the rows that these notes are about. One query."""
    table = model._meta.db_table
    keys = [_primary_key(model, note) for note in notes]
    rows = model._base_manager.in_bulk(keys)
    for key, note in zip(keys, notes, strict=True):
        row = rows.get(key)
        if row is None:
            # A row that was removed since is judged by the examiner of its table. That
            # of metadata compares nothing if there was an erasure.
            if model is RunMetadata:
                yield subject.missing_row(model, note.row)
            continue
        # Another run has written this trace since.
        if isinstance(row, MemoryTrace) and row.run != subject.run.id:
            continue
        if not _is_as_erased(subject, row, note):
            what = f"{table} {note.row}"
            reason = f"{what} is not as erasure {note.record_id} left it"
            yield Fault(str(subject.run.id), "", table, what, reason)


def _primary_key(model: type[Model], note: ErasedRow) -> Any:
    return model._meta.pk.to_python(note.row)


def _is_as_erased(subject: Subject, row: Any, note: ErasedRow) -> bool:
    """Return whether a row has the seal that its erasure gave it."""
    if bytes(row.seal or b"") == bytes(note.new_seal):
        return True
    # A result is resealed when its thread ends; its content is compared instead.
    if not isinstance(row, TaskResult) or subject.seal_of(row) is not None:
        return False
    return all(
        subject.is_hashed(row, column, subject.payload(row, column), "")
        for column in note.contents
    )
