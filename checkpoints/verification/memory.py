"""What a run remembered and read of memory: seals, and that what its log says has landed."""

from collections.abc import Collection, Iterator
from typing import Any

from django.db.models import Exists, OuterRef

from checkpoints.db.pages import pages
from checkpoints.memory.shelf import require_sound
from checkpoints.models import Checkpoint, MemoryLanding, MemoryRecord, MemoryTrace, Run, RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.trace import text_of

_LINES = ("memory_written", "memory_deleted")
_LANDED = ("node", "visit", "index", "n", "namespace", "key", "version", "deleted", "change")

Landed = tuple[Any, ...]
Address = tuple[str, str]


def remembered(subject: Subject) -> Iterator[Fault]:
    """What was read, what is remembered of this run now, and what landed."""
    yield from _records(subject)
    for page in pages(MemoryTrace.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = _fault_of_trace(row, str(subject.run.id))
            if fault is not None:
                yield fault
    yield from _landings(subject)
    yield from _placed(subject)
    if not subject.run.imported:
        # What landed is in the memory of the installation where the run was.
        yield from _forgotten(subject)


def _records(subject: Subject) -> Iterator[Fault]:
    """The seal of each record of a read, and that none is missing before another of its task."""
    rows = MemoryRecord.objects.filter(run=subject.run.id)
    for page in pages(rows, "id"):
        before = rows.filter(node__in={row.node for row in page}, n__in={row.n - 1 for row in page if row.n})
        there = set(before.values_list("line", "node", "visit", "index", "n"))
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
            elif row.n and (row.line, row.node, row.visit, row.index, row.n - 1) not in there:
                yield subject.gone(MemoryRecord, f"{subject.run.id} {row.task} {row.n - 1}")


def memory_of_nobody() -> Iterator[Fault]:
    """The traces that no run here looks after: those that a person had forgotten, or whose run was removed."""
    nobodys = MemoryTrace.objects.filter(~Exists(Run.objects.filter(id=OuterRef("run"))))
    for page in pages(nobodys, "id"):
        yield from filter(None, map(_fault_of_trace, page))


def _fault_of_trace(row: MemoryTrace, run: str = "") -> Fault | None:
    """The fault of a trace that is not as it was sealed, or is found by other words; None where it has none."""
    table, what = row._meta.db_table, sealed_rows.name_of(row)
    try:
        require_sound(row)
        if row.text == _text(row):
            return None
    except CountersignError as error:
        reason = error.message if what in error.message else f"{what}: {error.message}"
        return Fault(run, "", table, what, reason, error.code)
    return Fault(run, "", table, what, f"{what} is found by other words than those that it holds")


def _text(row: MemoryTrace) -> str:
    """The words by which a search finds a trace."""
    if row.encrypted or row.deleted:
        return ""
    return text_of(row.key, sealed_columns.read_value(row, "content"))


def _forgotten(subject: Subject) -> Iterator[Fault]:
    """What landed in memory is there, in this version or a later one: what people forget leaves its row."""
    for page in pages(MemoryLanding.objects.filter(run=subject.run.id), "id"):
        there = _traces(page)
        for landing in page:
            trace = there.get((landing.namespace, landing.key))
            if trace is None or trace.version < landing.version:
                what = f"{landing.namespace} {landing.key} version {landing.version}"
                yield subject.gone(MemoryTrace, what)
            elif trace.version == landing.version and trace.run != subject.run.id and not _found_nothing(landing):
                yield subject.fault(trace, "is said to be of another run than the one of which it landed")
        yield from _of_nobody(subject, there.values())


def _traces(landings: list[MemoryLanding]) -> dict[Address, MemoryTrace]:
    """The traces at the addresses of these landings. Two queries."""
    addresses = {(one.namespace, one.key) for one in landings}
    near = MemoryTrace.objects.filter(
        namespace__in={namespace for namespace, _ in addresses}, key__in={key for _, key in addresses}
    )
    ids = [pk for pk, *address in near.values_list("id", "namespace", "key") if tuple(address) in addresses]
    return {(row.namespace, row.key): row for row in MemoryTrace.objects.filter(id__in=ids)}


def _found_nothing(landing: MemoryLanding) -> bool:
    """Return whether a landing is a deletion that found nothing. Older rows do not tell it from others."""
    return landing.change == "nothing" or (landing.deleted and not landing.change)


def _of_nobody(subject: Subject, traces: Collection[MemoryTrace]) -> Iterator[Fault]:
    """The faults of those of these traces that no run here looks after. One query, where others wrote any."""
    others = [trace for trace in traces if trace.run != subject.run.id]
    runs = {trace.run for trace in others if trace.run is not None}
    there = set(Run.objects.filter(id__in=runs).values_list("id", flat=True)) if runs else set()
    for trace in others:
        if trace.run not in there:
            fault = _fault_of_trace(trace, str(subject.run.id))
            if fault is not None:
                yield fault


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
