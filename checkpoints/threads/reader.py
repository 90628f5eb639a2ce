"""Reads the checkpoints of a thread back. Every row that is read must match its seal.

Lines of the log say which row holds which checkpoint. If one was saved twice, the
newest line counts. Callers check rights.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.bytewise import Bytewise
from checkpoints.sealing import run_row, sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.threads.contents import (
    Document,
    ThreadState,
    ThreadWrite,
    point_of,
    write_of,
)
from checkpoints.threads.names import RAN, SAVED, WRITTEN, place_of
from orchestrator.engine.errors import Erased, TamperedRow
from orchestrator.engine.frozen import frozen

PAGE = 20
"""The most rows read at once: each may hold a whole state."""


@frozen
class SavedName:
    """A saved checkpoint by its names: place of the namespace, id, number of the line
    of the log that says so.
    """

    place: str
    id: str
    line: int


@frozen
class SavedLine:
    """A line of the log that says that a checkpoint was saved: its number, the names of
    the checkpoint, the id of the row that holds it, and the run of its engine that made
    it, if it said so.
    """

    seq: int
    namespace: str
    id: str
    row: UUID
    engine_run: str

    @property
    def name(self) -> tuple[str, str]:
        return self.namespace, self.id


def named_point(
    run: Run,
    namespace: str,
    id_: str,
) -> ThreadState | None:
    """Return a checkpoint of a thread; None if there is none, or it was removed. Raises
    `TamperedRow`, `WrongKey`, and `Erased` for a thread whose values were erased.
    """
    _require_readable(run)
    line = newest_line(run, namespace, id_)
    if line is None:
        return None
    return next(_points(run, [line]), None)


def latest_point(
    run: Run,
    namespace: str,
) -> ThreadState | None:
    """Return the checkpoint of a namespace with the highest id, which an index finds.
    Raises as `named_point` does.
    """
    _require_readable(run)
    require_whole_log(run)
    ids = highest_ids(run, namespace)
    id_ = ids.first()
    while id_ is not None:
        point = named_point(run, namespace, id_)
        if point is not None:
            return point
        # Its row was removed.
        ids = ids.alias(ordered=Bytewise("task"))
        id_ = ids.filter(ordered__lt=id_).first()
    return None


def highest_ids(
    run: Run,
    namespace: str,
) -> "QuerySet[RunEvent, str]":
    """Return the ids of the checkpoints of a namespace, the highest first."""
    lines = _lines(run, SAVED).filter(node=place_of(namespace))
    ordered = lines.order_by(Bytewise("task").desc(), "-seq")
    return ordered.values_list("task", flat=True)


def all_points(
    run: Run,
    namespace: str | None = None,
    *,
    id_: str = "",
    before: str = "",
) -> Iterator[ThreadState]:
    """Yield the checkpoints of a thread, the highest id first: those of a namespace,
    the one with this id, or those whose ids are lower than `before`. Reads pages. Raises
    as `named_point` does.
    """
    _require_readable(run)
    chosen = []
    for named in saved_points(run, namespace):
        is_lower = not before or named.id < before
        if is_lower and id_ in ("", named.id):
            chosen.append(named.line)
    for first in range(0, len(chosen), PAGE):
        numbers = chosen[first : first + PAGE]
        yield from _points(run, _lines_numbered(run, numbers))


def saved_points(
    run: Run,
    namespace: str | None = None,
) -> list[SavedName]:
    """Return the names of a thread's checkpoints, the highest id first. One query, which
    reads no payload.
    """
    lines = _lines(run, SAVED)
    if namespace is not None:
        lines = lines.filter(node=place_of(namespace))
    newest: dict[tuple[str, str], int] = {}
    for seq, place, id_ in lines.order_by("seq").values_list("seq", "node", "task"):
        newest[place, id_] = seq
    # Compared here, because databases order texts by language rules.
    names = []
    for (place, id_), seq in newest.items():
        names.append(SavedName(place, id_, seq))
    names.sort(key=_id_and_place, reverse=True)
    return names


def saved_lines(
    run: Run,
) -> list[SavedLine]:
    """Return the lines that say that a checkpoint of a thread was saved, in order: the
    newest of a checkpoint counts. One query. Raises `TamperedRow`, `WrongKey`.
    """
    return [_saved_line(run, line) for line in _lines(run, SAVED).order_by("seq")]


def _saved_line(
    run: Run,
    line: RunEvent,
) -> SavedLine:
    facts = _facts(run, line)
    return SavedLine(
        line.seq,
        facts["namespace"],
        line.task,
        UUID(facts["checkpoint"]),
        facts.get("engine_run", ""),
    )


def require_whole_log(run: Run) -> None:
    """Raise `TamperedRow` if a line about the newest row of a thread is missing, or a
    later one. Two queries, which read no payload.
    """
    rows = Checkpoint.objects.filter(run=run.id, seq=run.head_seq)
    last_of_row = rows.values_list("event_seq", flat=True).first()
    if last_of_row is None:
        raise TamperedRow(f"the head of run {run.key} is missing", run=str(run.id))
    # One of the last two lines saved with a row names it.
    first = max(last_of_row - 1, 1)
    lines = RunEvent.objects.filter(run=run.id, seq__range=(first, run.event_seq))
    if lines.count() != run.event_seq - first + 1:
        raise TamperedRow(
            f"a line is missing at the end of the log of run {run.key}", run=str(run.id)
        )


def _id_and_place(
    name: SavedName,
) -> tuple[str, str]:
    return name.id, name.place


def saved_line_of(
    row: Checkpoint,
) -> SavedLine | None:
    """Return the line that says which checkpoint a row of a thread holds; None for the
    row before any work, and where the line was removed. One query. Raises
    `TamperedRow`, `WrongKey`.
    """
    # If the row begins a line of the run, one more line follows.
    numbers = (row.event_seq - 1, row.event_seq)
    for line in _lines(row.run, SAVED).filter(seq__in=numbers):
        saved = _saved_line(row.run, line)
        if saved.row == row.id:
            return saved
    return None


def has_run(
    run: Run,
    engine_run: str,
) -> bool:
    """Return whether the log of a thread names a run of its engine."""
    return _lines(run, RAN).filter(task=engine_run).exists()


def threads_of(
    engine_runs: Collection[str],
) -> list[UUID]:
    """Return the ids of the threads whose logs name one of these runs of the engine."""
    lines = RunEvent.objects.filter(type=RAN, task__in=engine_runs)
    return list(lines.order_by("run").values_list("run", flat=True).distinct())


def document_of(
    run: Run,
    line: RunEvent,
) -> tuple[Checkpoint, Document] | None:
    """Return the row that a verified line names, and its document; None if the row was
    removed.
    """
    facts = _facts(run, line)
    rows = reader.range_of(UUID(facts["checkpoint"]))
    if not rows:
        return None
    return rows[-1], _proven(run, rows)


def newest_line(
    run: Run,
    namespace: str,
    id_: str | None = None,
) -> RunEvent | None:
    """Return the newest line that says that a checkpoint of a namespace was saved."""
    lines = _lines(run, SAVED).filter(node=place_of(namespace))
    if id_ is not None:
        lines = lines.filter(task=id_)
    return lines.order_by("-seq").first()


def writes_at(
    run: Run,
    place: str,
    id_: str,
) -> dict[tuple[str, int], ThreadWrite]:
    """Return the writes at a checkpoint by task and position."""
    lines = _lines(run, WRITTEN).filter(node=place, task=id_)
    return _folded(run, lines.order_by("seq"))


def writes_of(
    run: Run,
    line: SavedLine,
) -> list[ThreadWrite]:
    """Return the writes at a saved checkpoint, in the order in which its engine applies
    them. One query. Raises `TamperedRow`, `WrongKey`.
    """
    return _ordered(writes_at(run, place_of(line.namespace), line.id).values())


def _folded(
    run: Run,
    lines: Iterable[RunEvent],
) -> dict[tuple[str, int], ThreadWrite]:
    """Return the writes that lines about one checkpoint hold, by task and position."""
    writes: dict[tuple[str, int], ThreadWrite] = {}
    for line in lines:
        for value in _facts(run, line)["values"]:
            write = write_of(value)
            key = (write.task, write.position)
            if write.position < 0 or key not in writes:
                writes[key] = write
    return writes


def _lines_of_writes(
    run: Run,
    lines: Iterable[RunEvent],
) -> dict[tuple[str, str], list[RunEvent]]:
    """Return the lines about writes at these checkpoints, by place and id. One query."""
    places = {line.node for line in lines}
    ids = {line.task for line in lines}
    written = _lines(run, WRITTEN).filter(node__in=places, task__in=ids)
    by_name: dict[tuple[str, str], list[RunEvent]] = defaultdict(list)
    for line in written.order_by("seq"):
        by_name[line.node, line.task].append(line)
    return by_name


def _lines_numbered(
    run: Run,
    numbers: Sequence[int],
) -> Sequence[RunEvent]:
    """Return the lines with these numbers, in this order."""
    lines = {}
    for line in _lines(run, SAVED).filter(seq__in=numbers):
        lines[line.seq] = line
    ordered = []
    for number in numbers:
        if number in lines:
            ordered.append(lines[number])
    return ordered


def _points(
    run: Run,
    lines: Sequence[RunEvent],
) -> Iterator[ThreadState]:
    """Yield the checkpoints that these lines name, if their rows still exist."""
    facts_by_row = {}
    for line in lines:
        facts = _facts(run, line)
        row_id = UUID(facts["checkpoint"])
        facts_by_row[row_id] = (line, facts)
    if not facts_by_row:
        return

    ranges = reader.ranges_of(list(facts_by_row))
    written = _lines_of_writes(run, lines)
    for row_id, (line, facts) in facts_by_row.items():
        # The checkpoint was removed with its row.
        if row_id not in ranges:
            continue
        point = point_of(_proven(run, ranges[row_id]), facts["namespace"])
        if point is None or point.id != line.task:
            raise TamperedRow(
                f"checkpoint {row_id} does not hold what line {line.seq} of the log of"
                f" run {run.key} says",
                row=sealed_rows.name_of(ranges[row_id][-1]),
            )
        writes = _folded(run, written[line.node, line.task])
        engine_run = facts.get("engine_run", "")
        yield _with_writes(point, row_id, writes.values(), engine_run)


def _with_writes(
    point: ThreadState,
    row_id: UUID,
    writes: Iterable[ThreadWrite],
    engine_run: str,
) -> ThreadState:
    return ThreadState(
        point.namespace,
        point.id,
        point.parent,
        point.checkpoint,
        point.metadata,
        point.blobs,
        row_id,
        tuple(_ordered(writes)),
        engine_run,
    )


def _ordered(
    writes: Iterable[ThreadWrite],
) -> list[ThreadWrite]:
    """Return writes in the order in which their engine applies them."""
    return sorted(writes, key=lambda write: (write.path, write.task, write.position))


def _proven(
    run: Run,
    rows: Sequence[Checkpoint],
) -> Document:
    if rows[-1].run_id != run.id:
        raise TamperedRow(f"{rows[-1]} is not of run {run.key}")
    return reader.proven(rows, protection_of(run))


def _lines(
    run: Run,
    type_: str,
) -> "QuerySet[RunEvent]":
    return RunEvent.objects.filter(run=run.id, type=type_)


def _facts(
    run: Run,
    line: RunEvent,
) -> dict[str, Any]:
    """Return the facts of a line, verified."""
    sealed_rows.verify_row(line, protection_of(run))
    facts: dict[str, Any] = sealed_columns.read_value(line, "payload")
    return facts


def _require_readable(
    run: Run,
) -> None:
    run_row.verify_run_row(run)
    if run.erasure is not None:
        raise Erased(f"values of thread {run.key} were erased", run=str(run.id))
