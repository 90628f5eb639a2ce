"""Examines the metadata and figures of a run: their seals, and whether they have the
hashes and totals that its log has of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checkpoints.db.pages import pages
from checkpoints.ledger.notes import NOTED, metadata_hash, totals
from checkpoints.models import (
    ErasedRow,
    ErasureRecord,
    Run,
    RunEvent,
    RunMetadata,
    TaskFigure,
)
from checkpoints.models.notes import OF_RUN
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.erased_rows import is_sound
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.errors import CountersignError, InvalidValue
from orchestrator.engine.values import canonical

ERASED = "erased"
"""The type of the line that ends an erasure."""

Values = dict[int, dict[str, Any]]
"""By the number of the checkpoint, and name."""


@dataclass(slots=True)
class _StoredNotes:
    """The notes in the rows of a run: `metadata` values and `figures` totals, and in
    `erased` the seqs of checkpoints that lost some metadata to an erasure.
    """

    metadata: Values = field(default_factory=dict)
    figures: Values = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)


def notes(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of every row, then of every line of the log that records notes.
    A figure or an entry of metadata that no line records is a fault, unless lines were
    removed.
    """
    stored = _StoredNotes()
    yield from _read_metadata(subject, stored)
    yield from _read_figures(subject, stored)

    # Comparing a line takes its notes out, so that what remains is in no line: the
    # hashes of what an erasure left are taken before.
    hashes_of_erased = {}
    for seq in stored.erased:
        entries = stored.metadata.get(seq, {})
        hashes_of_erased[seq] = _hash_of(entries, subject.protection)

    hashes_logged_by_erasures: dict[str, str] = {}
    types = ["run_started", NOTED, ERASED]
    lines = RunEvent.objects.filter(run=subject.run.id, type__in=types)
    for page in pages(lines, "seq"):
        for line in page:
            facts = _facts(subject, line)
            if line.type == ERASED:
                hashes_logged_by_erasures |= _metadata_left_by(facts)
            else:
                yield from _faults_of_line(subject, facts, stored)

    yield from _faults_of_erasures(subject, hashes_of_erased, hashes_logged_by_erasures)
    yield from _faults_of_unlogged_notes(subject, stored)


def _metadata_left_by(facts: dict[str, Any]) -> dict[str, str]:
    """Return the hashes of the metadata that an erasure left, by the number of the
    checkpoint; none of an erasure by an older version, which did not log them.
    """
    hashes = facts.get("metadata")
    if not isinstance(hashes, dict):
        return {}
    return hashes


def _faults_of_line(
    subject: Subject, facts: dict[str, Any], stored: _StoredNotes
) -> Iterator[Fault]:
    """Yield a fault if a checkpoint has other metadata or figures than its line says."""
    seq = facts.get("seq", OF_RUN)
    # The notes that such a line was meant for remain, as notes that no line records.
    if not isinstance(seq, int):
        return
    entries = stored.metadata.pop(seq, {})
    sums = stored.figures.pop(seq, {})
    # An erasure changes metadata; what it left is compared with its own line.
    if seq not in stored.erased:
        hash_ = _hash_of(entries, subject.protection)
        if hash_ != facts.get("metadata", ""):
            yield subject.fault(
                subject.run, f"has other metadata at {_place(seq)} than its log says"
            )
    if sums != facts.get("figures", {}):
        yield subject.fault(
            subject.run, f"has other figures at {_place(seq)} than its log says"
        )


def _hash_of(entries: dict[str, Any], protection: Protection) -> str:
    """Return the hash of a checkpoint's metadata; for values that cannot be hashed, a
    text that is not a hash.
    """
    try:
        return metadata_hash(entries, protection)
    except InvalidValue:
        return "none"


def _faults_of_erasures(
    subject: Subject, hashes: dict[int, str], logged_hashes: dict[str, str]
) -> Iterator[Fault]:
    """Yield a fault for each checkpoint with other metadata than its erasure left."""
    # An erasure that is under way leaves less with each row.
    if _is_being_erased(subject.run):
        return
    for seq, hash_ in sorted(hashes.items()):
        # Lines of older versions do not say what an erasure left.
        if logged_hashes.get(str(seq), hash_) != hash_:
            yield subject.fault(
                subject.run,
                f"has other metadata at {_place(seq)} than its erasure left there",
            )


def _is_being_erased(run: Run) -> bool:
    return ErasureRecord.objects.filter(run=run.id, ended_at=None).exists()


def _faults_of_unlogged_notes(
    subject: Subject, stored: _StoredNotes
) -> Iterator[Fault]:
    """Yield a fault for the notes of each checkpoint that remain after all lines."""
    # Their lines may be among the removed ones.
    if subject.removed.events:
        return
    for seq in sorted({*stored.metadata, *stored.figures}):
        yield subject.fault(
            subject.run, f"has notes at {_place(seq)} of which its log does not tell"
        )


def _place(seq: int) -> str:
    return "its start" if seq == OF_RUN else f"checkpoint {seq}"


def _read_metadata(subject: Subject, stored: _StoredNotes) -> Iterator[Fault]:
    """Read all metadata into `stored`; yield the faults of the seals."""
    for page in pages(RunMetadata.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            if subject.erased.said_of(row) is not None:
                stored.erased.add(row.seq)
            stored.metadata.setdefault(row.seq, {})[row.name] = _value(row)


def _value(row: RunMetadata) -> Any:
    """Return the value; None if it cannot be read, which the seal's fault says."""
    try:
        return sealed_columns.read_value(row, "value")
    except CountersignError:
        return None


def _read_figures(subject: Subject, stored: _StoredNotes) -> Iterator[Fault]:
    """Add all figures up in `stored`; yield the faults of the seals."""
    figures = stored.figures
    for page in pages(TaskFigure.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            sums = figures.get(row.seq, {})
            figures[row.seq] = totals([sums, {row.name: row.millionths}])


def _facts(subject: Subject, line: RunEvent) -> dict[str, Any]:
    """Return the facts of a line; none if it cannot be read, which the log's own
    examiner names.
    """
    try:
        data = subject.payload(line, "payload")
        facts = canonical.loads(data) if data else {}
    except (CountersignError, ValueError):
        return {}
    if not isinstance(facts, dict):
        return {}
    return facts


def metadata_left(run: Run) -> dict[str, str]:
    """Return the hashes of the metadata that an erasure of this run left, by the number
    of the checkpoint: for the line of the log that ends the erasure.
    """
    ids = []
    erased = ErasedRow.objects.filter(run=run.id, table=RunMetadata._meta.db_table)
    for row in erased:
        # A planted row, which verification names, may hold anything as its id.
        if is_sound(row):
            ids.append(int(row.row))
    seqs = set(RunMetadata.objects.filter(id__in=ids).values_list("seq", flat=True))
    remaining: Values = {seq: {} for seq in seqs}
    for entry in RunMetadata.objects.filter(run=run.id, seq__in=seqs):
        # What an attacker put there must not keep an erasure from its end; the row's own
        # seal names it.
        remaining[entry.seq][entry.name] = _value(entry)

    protection = protection_of(run)
    hashes = {}
    for seq, values in remaining.items():
        hashes[str(seq)] = _hash_of(values, protection)
    return hashes
