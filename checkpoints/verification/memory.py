"""What a run remembered and read of memory: seals, and that what its log says has landed."""

from collections.abc import Iterator
from typing import Any

from checkpoints.db.pages import pages
from checkpoints.models import Checkpoint, MemoryLanding, MemoryRecord, MemoryTrace, RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.trace import text_of

_LINES = ("memory_written", "memory_deleted")
_LANDED = ("node", "visit", "index", "n", "namespace", "key", "version", "deleted", "change")

Landed = tuple[Any, ...]


def remembered(subject: Subject) -> Iterator[Fault]:
    """What was read, what is remembered of this run now, and what landed."""
    yield from subject.seals_of(MemoryRecord.objects.filter(run=subject.run.id))
    for page in pages(MemoryTrace.objects.filter(run=subject.run.id), "id"):
        for row in page:
            try:
                # Memory belongs to the installation: its rows say themselves whether they are encrypted.
                sealed_rows.verify_row(row, Protection(row.encrypted))
                if row.text != _text(row):
                    yield subject.fault(row, "is found by other words than those that it holds")
            except CountersignError as error:
                yield subject.refused(row, error)
    yield from _landings(subject)
    yield from _placed(subject)
    if not subject.run.imported:
        # What landed is in the memory of the installation where the run was.
        yield from _forgotten(subject)


def _text(row: MemoryTrace) -> str:
    """The words by which a search finds a trace."""
    if row.encrypted or row.deleted:
        return ""
    return text_of(row.key, sealed_columns.read_value(row, "content"))


def _forgotten(subject: Subject) -> Iterator[Fault]:
    """What landed in memory is there, in this version or a later one: what people forget leaves its row."""
    for page in pages(MemoryLanding.objects.filter(run=subject.run.id), "id"):
        rows = MemoryTrace.objects.filter(
            namespace__in={one.namespace for one in page}, key__in={one.key for one in page}
        )
        there = {(space, key): version for space, key, version in rows.values_list("namespace", "key", "version")}
        for one in page:
            if there.get((one.namespace, one.key), 0) < one.version:
                yield subject.gone(MemoryTrace, f"{one.namespace} {one.key} version {one.version}")


def _placed(subject: Subject) -> Iterator[Fault]:
    """Each landing names the checkpoint with which it landed, and its superstep. Two queries for a page."""
    for page in pages(MemoryLanding.objects.filter(run=subject.run.id), "id"):
        named = {row.seq for row in page}
        rows = Checkpoint.objects.filter(run=subject.run.id, seq__in=named | {seq - 1 for seq in named})
        there = {seq: (line, step) for seq, line, step in rows.values_list("seq", "line", "superstep")}
        for row in page:
            if row.seq in there and not _lands_with(row, there):
                what = f"{subject.run.id} {row.task} {row.n}"
                reason = (
                    f"{MemoryLanding._meta.db_table} {what} names checkpoint {row.seq} of superstep {row.superstep}"
                )
                yield subject.fault(subject.run, f"has a landing that is of no such place: {reason}")
            elif row.seq not in there and row.seq not in subject.removed.checkpoints:
                yield subject.gone(Checkpoint, f"{subject.run.id} at {row.seq}, which a landing of memory names,")


def _lands_with(row: MemoryLanding, there: dict[int, tuple[int, int]]) -> bool:
    """Return whether a landing is of its checkpoint, or of a recovery point whose place that took."""
    line, superstep = there[row.seq]
    _, before = there.get(row.seq - 1, (line, 0))
    return line == row.line and (row.superstep == superstep or before < row.superstep < superstep)


def _landings(subject: Subject) -> Iterator[Fault]:
    rows, content = MemoryLanding.objects.filter(run=subject.run.id), 0
    for page in pages(RunEvent.objects.filter(run=subject.run.id, type__in=_LINES), "seq"):
        content += len(page)
        wanted = [one for line in page if (one := _said(subject, line)) is not None]
        there = set(rows.filter(key__in={one[5] for one in wanted}).values_list(*_LANDED))
        for one in wanted:
            if one not in there:
                yield subject.gone(MemoryLanding, f"{subject.run.id} {Task(*one[:3])} {one[3]} of {one[4]}/{one[5]}")
    # Of lines that were removed nothing is known but how many they were.
    if rows.count() > content + subject.removed.events.count:
        yield subject.fault(subject.run, "has landings of memory that its log does not speak of")


def _said(subject: Subject, line: RunEvent) -> Landed | None:
    """What a line says has landed; None where it cannot be read, which the log's own examiner has named."""
    facts = facts_of(subject, line)
    if facts is None:
        return None
    task = Task.parse(line.task)
    address = (facts["namespace"], facts["key"], facts["version"])
    # Lines that were written before this was noted have none, and neither have their rows.
    change = facts.get("did", "")
    return (task.node, task.visit, task.index, facts["n"], *address, line.type == "memory_deleted", change)
