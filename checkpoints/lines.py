"""The lines of runs: where each departed, and which rows of a run, its older lines and
its origins lie before a point.

This module answers what happened on the way to a checkpoint. Reads only;
`ledger.departure` begins lines. A row that is not as it was written, or is gone, raises
`TamperedRow`, or `WrongKey`.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from checkpoints.db import query_cache
from checkpoints.db.query_cache import padded, pairs_in
from checkpoints.db.rows import (
    Row,
    attributes_of,
    fetch_records,
    from_driver,
    named_columns,
    new_row,
)
from checkpoints.models import Checkpoint, Run, RunEvent, RunLine
from checkpoints.models.checkpoint import Source
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protected, protection_of
from orchestrator.engine.errors import TamperedRow, WrongStatus
from orchestrator.engine.frozen import frozen

Key = TypeVar("Key", UUID, int)
DEPARTED = (Source.FORK, Source.REPLAY)
"""The sources of the first checkpoint of a run that came from another."""
NOT_STARTED = "*"
"""The stop that covers every node: none starts until a person resumes the run."""
FARTHEST = 100
"""The most origins that are followed, for forks of forks."""
AT_ONCE = 1000
"""The most runs named in one query, because a database limits the length of a list."""


@frozen
class Stretch:
    """A line of a run as far as it counts: up to the checkpoint of seq `last`, or to
    its end for None.
    """

    run: UUID
    line: int
    last: int | None


def ancestry(run_id: UUID, line: int) -> tuple[tuple[int, int | None], ...]:
    """Return (line, last seq that counts) from the line itself, of which everything
    counts (None), to its oldest ancestor of the same run. One query, none on the first
    line.
    """
    rows = _beginning_of(run_id).lines if line > 1 else {}
    stretches = _own(run_id, line, rows)
    return tuple((stretch.line, stretch.last) for stretch in stretches)


def past(run_id: UUID, line: int, last: int | None = None) -> list[Stretch]:
    """Return the way to checkpoint `last` of a line: the line itself, its ancestors,
    then those of the origins, each as far as it counts, the newest first. One query for
    each run.
    """
    stretches: list[Stretch] = []
    for _ in range(FARTHEST):
        beginning = _beginning_of(run_id)
        stretches += _own(run_id, line, beginning.lines, last)
        origin = beginning.lines.get(1)
        if origin is None:
            _require_started(beginning)
            return stretches
        run_id = origin.departure_run
        line = origin.parent_line
        last = origin.departure_seq
    raise WrongStatus(
        f"more than {FARTHEST} forks lie one behind the other before run {run_id}",
        run=str(run_id),
    )


def _require_started(beginning: "_Beginning") -> None:
    """Raise `TamperedRow` if a run without a row for its first line is a fork."""
    run = beginning.run
    # The way may lead on into a run that is not in this database.
    if run is None:
        return
    if run.origin_checkpoint is not None:
        raise TamperedRow(f"the row of line 1 of run {run.id} is gone", run=str(run.id))
    first = beginning.first
    if first is not None:
        sealed_rows.verify_row(first, protection_of(run))
    _require_beginning(run, first)


def require_started(run: "Lined", *, first: Checkpoint | None = None) -> None:
    """Raise `TamperedRow` if a run whose row names no origin began as a fork or a
    replay, as sealed rows say; and `WrongKey`. `first` is a verified row of it that may
    be its first checkpoint: then there is no query, else one, or two where retention
    removed the first checkpoint.
    """
    # Sealed rows say how a run began; the column of the run's row could be emptied.
    if first is None or first.seq != 0:
        first = _first_checkpoint(run.id)
        if first is not None:
            sealed_rows.verify_row(first, protection_of(run))
    _require_beginning(run, first)


def _require_beginning(run: "Lined", first: Checkpoint | None) -> None:
    """Raise `TamperedRow` where the verified first checkpoint of a run, or without one
    the first event of its log, says that it departed from another run.
    """
    departed = first.source in DEPARTED if first is not None else _began_elsewhere(run)
    if departed:
        raise TamperedRow(
            f"run {run.key} names no checkpoint that it came from, "
            "but it began as a fork or a replay",
            run=str(run.id),
        )


def _first_checkpoint(run_id: UUID) -> Checkpoint | None:
    rows = query_cache.select(
        Checkpoint, _query_of_first, run_id, deferred=("change", "snapshot")
    )
    return rows[0] if rows else None


def _query_of_first(run: UUID) -> "QuerySet[Checkpoint]":
    rows = Checkpoint.objects.filter(run=run, seq=0).order_by()
    return rows.defer("change", "snapshot")


def _began_elsewhere(run: "Lined") -> bool:
    """Return whether the first event of a run's log says that it departed from another
    run.
    """
    line = RunEvent.objects.filter(run=run.id, seq=1).first()
    if line is None:
        raise TamperedRow(
            f"nothing says how run {run.key} began: its first log entry is gone",
            run=str(run.id),
        )
    sealed_rows.verify_row(line, protection_of(run))
    return "departure" in sealed_columns.read_value(line, "payload")


def within(stretches: Sequence[Stretch], *, seq: str = "seq") -> Q:
    """Return the filter for rows with columns run, line and `seq` (the checkpoint that
    lists them) on these stretches.
    """
    # Without stretches no row matches, where an empty condition would match all.
    on_stretches = Q(pk__in=[])
    for stretch in stretches:
        upto = {} if stretch.last is None else {f"{seq}__lte": stretch.last}
        on_stretches |= Q(run=stretch.run, line=stretch.line, **upto)
    return on_stretches


class Lined(Protected, Protocol):
    """A run, or a lease on it."""

    @property
    def id(self) -> UUID: ...
    @property
    def key(self) -> str: ...
    @property
    def origin_checkpoint(self) -> UUID | None: ...


def logged_until(stretch: Stretch) -> int | None:
    """Return the number of the last event at the stretch's last checkpoint; None if all
    of the line counts.
    """
    if stretch.last is None:
        return None
    rows = query_cache.select_values(query_of_ends, stretch.run, stretch.last)
    return rows[0][-1] if rows else 0


def ends_of(stretches: Sequence[Stretch]) -> list[UUID | int]:
    """Return the values from which `query_of_ends` is built for these stretches; none if
    all of each line counts.
    """
    places: list[UUID | int] = []
    for stretch in padded([each for each in stretches if each.last is not None]):
        places += (stretch.run, stretch.last or 0)
    return places


def query_of_ends(*places: Any) -> "QuerySet[Checkpoint, Any]":
    """Build the query for (run, seq, number of its last event) of checkpoints: runs, each
    with a seq.
    """
    ends = Q()
    for run, seq in pairs_in(places):
        ends |= Q(run=run, seq=seq)
    rows = Checkpoint.objects.filter(ends).order_by()
    return rows.values_list("run", "seq", "event_seq")


def line_row(run: Lined, number: int) -> RunLine | None:
    """Return the row that records how a line began; None for the first line of a run
    that was started. Raises `TamperedRow` if it is not as it was written or is gone,
    `WrongKey`.
    """
    if number == 1 and run.origin_checkpoint is None:
        return None
    rows = query_cache.select(RunLine, _query_of_line, run.id, number)
    if not rows:
        raise TamperedRow(
            f"the row of line {number} of run {run.key} is gone", run=str(run.id)
        )
    sealed_rows.verify_rows(rows, protection_of(run))
    return rows[0]


def _query_of_line(run: UUID, number: int) -> "QuerySet[RunLine]":
    return RunLine.objects.filter(run=run, number=number).order_by()


def forks_of(run_id: UUID) -> "QuerySet[RunLine, UUID]":
    """Return the ids of the runs that were forked or replayed from a checkpoint of this
    one, as a subquery.
    """
    first_lines = RunLine.objects.filter(departure_run=run_id, number=1)
    return first_lines.order_by().values_list("run", flat=True)


def in_parts(keys: Collection[Key]) -> Iterator[list[Key]]:
    """Yield these ids or numbers in lists that are short enough for one query."""
    ids = list(keys)
    for first in range(0, len(ids), AT_ONCE):
        yield ids[first : first + AT_ONCE]


@frozen
class _Beginning:
    """The row of a run with the columns that `_OF_RUN` names, its verified lines by
    number, and its first checkpoint without payload, not verified. None for rows that
    are not there.
    """

    run: Run | None
    lines: dict[int, RunLine]
    first: Checkpoint | None = None


_OF_RUN = ("id", "key", "origin_checkpoint", "encrypted", "hash_key")
_OF_LINE = attributes_of(RunLine)
_OF_FIRST = attributes_of(Checkpoint, ("change", "snapshot"))


def _beginning_of(run_id: UUID) -> _Beginning:
    """Read how a run and its lines began. One query."""
    records = fetch_records(_beginning_sql(), [run_id])
    if not records:
        return _Beginning(None, {})

    # Each record has its own line, and the run and its first checkpoint again.
    of_run = len(_OF_RUN)
    of_line = of_run + len(_OF_LINE)
    run = _row_of(Run, _OF_RUN, records[0][:of_run])
    first = _row_of(Checkpoint, _OF_FIRST, records[0][of_line:])
    lines = []
    for record in records:
        line = _row_of(RunLine, _OF_LINE, record[of_run:of_line])
        if line is not None:
            lines.append(line)
    assert run is not None
    sealed_rows.verify_rows(lines, protection_of(run))
    return _Beginning(run, {line.number: line for line in lines}, first)


def _row_of(
    model: type[Row], names: tuple[str, ...], record: Sequence[Any]
) -> Row | None:
    """Return the row of a part of a record; None where the part is empty."""
    [values] = from_driver(model, names, [record], connection.vendor)
    stored = dict(zip(names, values, strict=True))
    return new_row(model, stored) if stored["id"] is not None else None


@cache
def _beginning_sql() -> str:
    columns = (
        named_columns(Run, _OF_RUN, "r"),
        named_columns(RunLine, _OF_LINE, "l"),
        named_columns(Checkpoint, _OF_FIRST, "c"),
    )
    return (
        f"SELECT {', '.join(columns)} FROM {Run._meta.db_table} r "  # noqa: S608
        f"LEFT JOIN {RunLine._meta.db_table} l ON l.run_id = r.id "
        f"LEFT JOIN {Checkpoint._meta.db_table} c ON c.run_id = r.id AND c.seq = 0 "
        "WHERE r.id = %s ORDER BY l.number"
    )


def _own(
    run_id: UUID, line: int, rows: dict[int, RunLine], last: int | None = None
) -> list[Stretch]:
    """Return the stretches of a line and of its ancestors in the same run."""
    stretches = [Stretch(run_id, line, last)]
    while line > 1:
        if line not in rows:
            raise TamperedRow(
                f"the row of line {line} of run {run_id} is gone", run=str(run_id)
            )
        row = rows[line]
        line = row.parent_line
        stretches.append(Stretch(run_id, line, row.departure_seq))
    return stretches
