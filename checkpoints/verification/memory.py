"""Examines what a run read from memory and remembered: the seals, and whether memory
has what the log says has landed there.
"""

from collections.abc import Collection, Iterator
from typing import Any

from django.db.models import Count, Exists, OuterRef

from checkpoints.db.pages import pages
from checkpoints.memory.shelf import require_sound
from checkpoints.models import (
    Checkpoint,
    MemoryLanding,
    MemoryRecord,
    MemoryTrace,
    Run,
    RunEvent,
)
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.trace import text_of

_LINES = ("memory_written", "memory_deleted")
_LANDED = (
    "node",
    "visit",
    "index",
    "n",
    "namespace",
    "key",
    "version",
    "deleted",
    "change",
)

_Landed = tuple[Any, ...]
"""The columns `_LANDED` of a landing, as its row or a line of the log has them."""
_Address = tuple[str, str]
"""Namespace and key."""


def memory(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of what the run read, of its traces, and of what landed."""
    yield from _faults_of_reads(subject)
    for page in pages(MemoryTrace.objects.filter(run=subject.run.id), "id"):
        for row in page:
            fault = _fault_of_trace(row, str(subject.run.id))
            if fault is not None:
                yield fault
    yield from _faults_of_logged_landings(subject)
    yield from _faults_of_places(subject)
    # What an imported run remembered is in the memory of the installation where it ran.
    if not subject.run.imported:
        yield from _faults_of_landed_traces(subject)


def _faults_of_reads(subject: Subject) -> Iterator[Fault]:
    """Yield a fault for each record of a read that does not match its seal, and for
    each that is missing before another of its task.
    """
    rows = MemoryRecord.objects.filter(run=subject.run.id)
    for page in pages(rows, "id"):
        nodes = {row.node for row in page}
        earlier_numbers = {row.n - 1 for row in page if row.n}
        # This also matches one node with the number of another.
        earlier = rows.filter(node__in=nodes, n__in=earlier_numbers)
        stored = set(earlier.values_list("line", "node", "visit", "index", "n"))
        for row in page:
            fault = subject.seal_of(row)
            if fault is not None:
                yield fault
                continue
            # If the last record of a task is missing, the examiner of the log finds too
            # few.
            before = (row.line, row.node, row.visit, row.index, row.n - 1)
            if row.n and before not in stored:
                yield subject.missing_row(
                    MemoryRecord, f"{subject.run.id} {row.task} {row.n - 1}"
                )


def memory_of_nobody() -> Iterator[Fault]:
    """Yield the faults of the traces that no run here looks after: those that a person
    emptied, and those whose run was removed.
    """
    run = Run.objects.filter(id=OuterRef("run"))
    for page in pages(MemoryTrace.objects.filter(~Exists(run)), "id"):
        for row in page:
            fault = _fault_of_trace(row)
            if fault is not None:
                yield fault


def versions_landed_twice() -> Iterator[Fault]:
    """Yield the addresses at which more than one change made the same version: their
    trace was deleted in between, and counted from 1 again. One query.
    """
    # Imported runs landed in another memory, and a deletion that found nothing made no
    # version.
    changes = (
        MemoryLanding.objects.filter(run__imported=False)
        .exclude(change="nothing")
        .exclude(deleted=True, change="")
    )
    address = ("namespace", "key", "version")
    counted = changes.order_by(*address).values(*address).annotate(changes=Count("id"))
    table = MemoryTrace._meta.db_table
    for namespace, key, version in counted.filter(changes__gt=1).values_list(*address):
        what = f"{table} {namespace} {key}"
        reason = (
            f"{what} was deleted once: more than one change made its version {version}"
        )
        yield Fault("", "", table, what, reason)


def _fault_of_trace(row: MemoryTrace, run: str = "") -> Fault | None:
    """Return the fault of a trace that does not match its seal, or that a search finds
    by other words than its own; None if it has none.
    """
    table = row._meta.db_table
    what = sealed_rows.name_of(row)
    try:
        require_sound(row)
        if row.text == _text_for_search(row):
            return None
    except CountersignError as error:
        reason = error.message if what in error.message else f"{what}: {error.message}"
        return Fault(run, "", table, what, reason, error.code)
    return Fault(
        run, "", table, what, f"{what} is found by other words than those that it holds"
    )


def _text_for_search(row: MemoryTrace) -> str:
    """Return the words with which a search finds a trace."""
    if row.encrypted or row.deleted:
        return ""
    return text_of(row.key, sealed_columns.read_value(row, "content"))


def _faults_of_landed_traces(subject: Subject) -> Iterator[Fault]:
    """Yield a fault unless what landed is in memory, in this version or a later one. A
    row remains even for content that people had erased.
    """
    for page in pages(MemoryLanding.objects.filter(run=subject.run.id), "id"):
        traces = _traces_of(page)
        for landing in page:
            trace = traces.get((landing.namespace, landing.key))
            if trace is None or trace.version < landing.version:
                what = f"{landing.namespace} {landing.key} version {landing.version}"
                yield subject.missing_row(MemoryTrace, what)
            elif trace.version == landing.version and _is_moved(
                subject, trace, landing
            ):
                yield subject.fault(
                    trace,
                    "is said to be of another run than the one of which it landed",
                )
        yield from _faults_of_others_traces(subject, traces.values())


def _is_moved(subject: Subject, trace: MemoryTrace, landing: MemoryLanding) -> bool:
    """Return whether a trace claims another run than the one that made its version."""
    if trace.run == subject.run.id:
        return False
    # A deletion that found nothing made no version. Older rows do not distinguish it
    # from others.
    found_nothing = landing.change == "nothing" or (
        landing.deleted and not landing.change
    )
    return not found_nothing


def _traces_of(landings: list[MemoryLanding]) -> dict[_Address, MemoryTrace]:
    """Return the traces at the addresses of these landings. Two queries."""
    addresses = {(landing.namespace, landing.key) for landing in landings}
    candidates = MemoryTrace.objects.filter(
        namespace__in={namespace for namespace, _ in addresses},
        key__in={key for _, key in addresses},
    )
    # Namespace and key of two addresses may also be those of a third.
    ids = []
    for id, namespace, key in candidates.values_list("id", "namespace", "key"):
        if (namespace, key) in addresses:
            ids.append(id)
    traces = {}
    for row in MemoryTrace.objects.filter(id__in=ids):
        traces[row.namespace, row.key] = row
    return traces


def _faults_of_others_traces(
    subject: Subject, traces: Collection[MemoryTrace]
) -> Iterator[Fault]:
    """Yield the faults of those of these traces that no run here looks after. One
    query, none if all are of this run.
    """
    others = [trace for trace in traces if trace.run != subject.run.id]
    runs = {trace.run for trace in others if trace.run is not None}
    present: set[Any] = set()
    if runs:
        present.update(Run.objects.filter(id__in=runs).values_list("id", flat=True))
    for trace in others:
        # A run that still exists examines its own traces.
        if trace.run in present:
            continue
        fault = _fault_of_trace(trace, str(subject.run.id))
        if fault is not None:
            yield fault


def _faults_of_places(subject: Subject) -> Iterator[Fault]:
    """Yield a fault unless each landing names the checkpoint with which it landed, and
    its superstep. Two queries for a page.
    """
    for page in pages(MemoryLanding.objects.filter(run=subject.run.id), "id"):
        points = _points_of(subject, page)
        for row in page:
            if row.seq in points:
                if not _lands_with(row, points):
                    yield _fault_of_place(subject, row)
            elif row.seq not in subject.removed.checkpoints:
                yield subject.missing_row(
                    Checkpoint,
                    f"{subject.run.id} at {row.seq}, which a landing of memory names,",
                )


def _points_of(
    subject: Subject, landings: list[MemoryLanding]
) -> dict[int, tuple[int, int]]:
    """Return line and superstep of the checkpoints that these landings name, and of
    those before them, by their number. One query.
    """
    seqs: set[int] = set()
    for row in landings:
        seqs.update((row.seq, row.seq - 1))
    rows = Checkpoint.objects.filter(run=subject.run.id, seq__in=seqs)
    points = {}
    for seq, line, superstep in rows.values_list("seq", "line", "superstep"):
        points[seq] = (line, superstep)
    return points


def _fault_of_place(subject: Subject, row: MemoryLanding) -> Fault:
    table = MemoryLanding._meta.db_table
    what = f"{table} {subject.run.id} {row.task} {row.n}"
    return subject.fault(
        subject.run,
        f"has a landing that is of no such place: {what} names checkpoint {row.seq}"
        f" of superstep {row.superstep}",
    )


def _lands_with(row: MemoryLanding, points: dict[int, tuple[int, int]]) -> bool:
    """Return whether a landing is of its checkpoint, or of a recovery point that the
    checkpoint replaced.
    """
    line, superstep = points[row.seq]
    _, superstep_before = points.get(row.seq - 1, (line, 0))
    if line != row.line:
        return False
    return row.superstep == superstep or superstep_before < row.superstep < superstep


def _faults_of_logged_landings(subject: Subject) -> Iterator[Fault]:
    """Yield a fault for each landing that the log records and that is not there, and
    one if there are more than it records.
    """
    rows = MemoryLanding.objects.filter(run=subject.run.id)
    lines = RunEvent.objects.filter(run=subject.run.id, type__in=_LINES)
    line_count = 0
    for page in pages(lines, "seq"):
        line_count += len(page)
        logged = []
        for line in page:
            landing = _landing_in(subject, line)
            if landing is not None:
                logged.append(landing)

        keys = {landing[_LANDED.index("key")] for landing in logged}
        stored = set(rows.filter(key__in=keys).values_list(*_LANDED))
        for landing in logged:
            if landing not in stored:
                yield _missing_landing(subject, landing)
    # Only the number of removed lines is known.
    if rows.count() > line_count + subject.removed.events.count:
        yield subject.fault(
            subject.run, "has landings of memory that its log does not speak of"
        )


def _missing_landing(subject: Subject, landing: _Landed) -> Fault:
    node, visit, index, n, namespace, key, *_ = landing
    task = Task(node, visit, index)
    return subject.missing_row(
        MemoryLanding, f"{subject.run.id} {task} {n} of {namespace}/{key}"
    )


def _landing_in(subject: Subject, line: RunEvent) -> _Landed | None:
    """Return the landing that a line records; None if it cannot be read, which the
    log's own examiner names.
    """
    facts = facts_of(subject, line)
    if facts is None:
        return None
    task = Task.parse(line.task)
    return (
        task.node,
        task.visit,
        task.index,
        facts["n"],
        facts["namespace"],
        facts["key"],
        facts["version"],
        line.type == "memory_deleted",
        # Lines of older versions lack this fact, and their rows have no change.
        facts.get("did", ""),
    )
