"""Metadata and figures of a run: seals, and whether they are those whose hashes and totals its log says."""

from collections.abc import Iterator
from typing import Any

from checkpoints.db.pages import pages
from checkpoints.ledger.notes import NOTED, metadata_hash, totals
from checkpoints.models import ErasedRow, ErasureRecord, Run, RunEvent, RunMetadata, TaskFigure
from checkpoints.models.notes import OF_RUN
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError

ERASED = "erased"
"""The type of the line that ends an erasure."""

Values = dict[int, dict[str, Any]]
"""By the number of the checkpoint, and name."""


def noted(subject: Subject) -> Iterator[Fault]:
    """Every row, then every line of the log that tells of some. A figure or an entry of metadata of which no line tells
    is a fault, unless lines were removed.
    """
    metadata: Values = {}
    figures: Values = {}
    erased: set[int] = set()
    left: dict[str, str] = {}
    yield from _metadata(subject, metadata, erased)
    yield from _figures(subject, figures)
    rows = RunEvent.objects.filter(run=subject.run.id, type__in=["run_started", NOTED, ERASED])
    hashes = {seq: metadata_hash(metadata.get(seq, {}), subject.protection) for seq in erased}
    for page in pages(rows, "seq"):
        for line in page:
            facts = _facts(subject, line)
            if line.type == ERASED:
                said = facts.get("metadata")
                left |= said if isinstance(said, dict) else {}
                continue
            seq = facts.get("seq", OF_RUN)
            if not isinstance(seq, int):
                continue
            has, totals_there = metadata.pop(seq, {}), figures.pop(seq, {})
            hash_ = metadata_hash(has, subject.protection)
            if seq not in erased and hash_ != facts.get("metadata", ""):
                yield subject.fault(subject.run, f"has other metadata at {_place(seq)} than its log says")
            if totals_there != facts.get("figures", {}):
                yield subject.fault(subject.run, f"has other figures at {_place(seq)} than its log says")
    # Lines of older versions do not say what an erasure left; one that goes on leaves less with each row.
    for seq in sorted(erased if not _goes_on(subject.run) else ()):
        if left.get(str(seq), hashes[seq]) != hashes[seq]:
            yield subject.fault(subject.run, f"has other metadata at {_place(seq)} than its erasure left there")
    for seq in sorted({*metadata, *figures}):
        if not subject.removed.events:
            yield subject.fault(subject.run, f"has notes at {_place(seq)} of which its log does not tell")


def _goes_on(run: Run) -> bool:
    return ErasureRecord.objects.filter(run=run.id, ended_at=None).exists()


def metadata_left(run: Run) -> dict[str, str]:
    """Of what was erased of a run's metadata, the hash of what is left there, by the number of the checkpoint: for the
    line of the log that ends an erasure.
    """
    table = RunMetadata._meta.db_table
    keys = [int(row) for row in ErasedRow.objects.filter(run=run.id, table=table).values_list("row", flat=True)]
    seqs = set(RunMetadata.objects.filter(id__in=keys).values_list("seq", flat=True))
    left: Values = {seq: {} for seq in seqs}
    for row in RunMetadata.objects.filter(run=run.id, seq__in=seqs):
        left[row.seq][row.name] = sealed_columns.read_value(row, "value")
    return {str(seq): metadata_hash(values, protection_of(run)) for seq, values in left.items()}


def _place(seq: int) -> str:
    return "its start" if seq == OF_RUN else f"checkpoint {seq}"


def _metadata(subject: Subject, values: Values, erased: set[int]) -> Iterator[Fault]:
    for page in pages(RunMetadata.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            if subject.erased.said_of(row) is not None:
                erased.add(row.seq)
            values.setdefault(row.seq, {})[row.name] = _value(row)


def _value(row: RunMetadata) -> Any:
    """The value; None where it cannot be read, which the seal has told."""
    try:
        return sealed_columns.read_value(row, "value")
    except CountersignError:
        return None


def _figures(subject: Subject, values: Values) -> Iterator[Fault]:
    for page in pages(TaskFigure.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            values[row.seq] = totals([values.get(row.seq, {}), {row.name: row.millionths}])


def _facts(subject: Subject, line: RunEvent) -> dict[str, Any]:
    """What a line tells; nothing where it cannot be read, which the log's own examiner has named."""
    try:
        data = subject.payload(line, "payload")
    except CountersignError:
        return {}
    facts = canonical.loads(data) if data else {}
    return facts if isinstance(facts, dict) else {}
