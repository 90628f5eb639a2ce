"""The lines of runs: where each departed, and which rows of a run, its older lines and
its origins lie before a point.

This module answers what happened on the way to a checkpoint. Reads only;
`ledger.departure` begins lines. A row that is not as it was written, or is gone, raises
`TamperedRow`, or `WrongKey`.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet

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
"""The stop that stands for every node: none starts until a person resumes the run."""
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
    rows = _lines_of(run_id) if line > 1 else {}
    stretches = _own(run_id, line, rows)
    return tuple((stretch.line, stretch.last) for stretch in stretches)


def past(
    run_id: UUID, line: int, last: int | None = None, *, loaded_run: Run | None = None
) -> list[Stretch]:
    """Return the way to checkpoint `last` of a line: the line itself, its ancestors,
    then those of the origins, each as far as it counts, the newest first. One query for
    each origin, and one to verify that the first run was started, unless its row is
    `loaded_run`.
    """
    stretches: list[Stretch] = []
    for _ in range(FARTHEST):
        rows = _lines_of(run_id)
        stretches += _own(run_id, line, rows, last)
        origin = rows.get(1)
        if origin is None:
            _require_started(run_id, loaded_run)
            return stretches
        run_id = origin.departure_run
        line = origin.parent_line
        last = origin.departure_seq
    raise WrongStatus(
        f"more than {FARTHEST} forks lie one behind the other before run {run_id}",
        run=str(run_id),
    )


def _require_started(run_id: UUID, run: Run | None) -> None:
    """Raise `TamperedRow` if a run without a row for its first line is a fork."""
    if run is None or run.id != run_id:
        columns = ("id", "key", "origin_checkpoint", "encrypted", "hash_key")
        run = Run.objects.filter(id=run_id).only(*columns).first()
    if run is None:
        return
    if run.origin_checkpoint is not None:
        raise TamperedRow(f"the row of line 1 of run {run_id} is gone", run=str(run_id))
    require_started(run)


def require_started(run: "Lined", *, first: Checkpoint | None = None) -> None:
    """Raise `TamperedRow` if a run whose row names no origin began as a fork or a
    replay, as sealed rows say; and `WrongKey`. `first` is a verified row of it that may
    be its first checkpoint: then there is no query, else one, or two where retention
    removed the first checkpoint.
    """
    # Sealed rows say how a run began; the column of the run's row could be emptied.
    if first is None or first.seq != 0:
        rows = Checkpoint.objects.filter(run=run.id, seq=0)
        first = rows.defer("change", "snapshot").first()
        if first is not None:
            sealed_rows.verify_row(first, protection_of(run))
    departed = first.source in DEPARTED if first is not None else _began_elsewhere(run)
    if departed:
        raise TamperedRow(
            f"run {run.key} names no checkpoint that it came from, "
            "but it began as a fork or a replay",
            run=str(run.id),
        )


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
    rows = Checkpoint.objects.filter(run=stretch.run, seq=stretch.last)
    return rows.values_list("event_seq", flat=True).first() or 0


def line_row(run: Lined, number: int) -> RunLine | None:
    """Return the row that records how a line began; None for the first line of a run
    that was started. Raises `TamperedRow` if it is not as it was written or is gone,
    `WrongKey`.
    """
    if number == 1 and run.origin_checkpoint is None:
        return None
    row = RunLine.objects.filter(run=run.id, number=number).first()
    if row is None:
        raise TamperedRow(
            f"the row of line {number} of run {run.key} is gone", run=str(run.id)
        )
    sealed_rows.verify_row(row, protection_of(run))
    return row


def forks_of(run_id: UUID) -> "QuerySet[RunLine, UUID]":
    """Return the ids of the runs that were forked or replayed from a checkpoint of this
    one, as a subquery.
    """
    first_lines = RunLine.objects.filter(departure_run=run_id, number=1)
    return first_lines.order_by().values_list("run", flat=True)


def forks_below(runs: Collection[UUID], *, nearest: Collection[UUID]) -> list[UUID]:
    """Return the runs below these: the `nearest`, which were forked or replayed from
    them, then the runs from those, and so on; a replay has no outside, its forks have.
    One query for each generation of up to a thousand, and one that finds no further
    runs.
    """
    level = [run for run in dict.fromkeys(nearest) if run not in runs]
    below = dict.fromkeys(level)
    while level:
        children: list[UUID] = []
        for some_runs in in_parts(level):
            rows = RunLine.objects.filter(departure_run__in=some_runs, number=1)
            children += rows.order_by("id").values_list("run", flat=True)
        level = [
            run
            for run in dict.fromkeys(children)
            if run not in below and run not in runs
        ]
        below |= dict.fromkeys(level)
    return list(below)


def in_parts(keys: Collection[Key]) -> Iterator[list[Key]]:
    """Yield these ids or numbers in lists that are short enough for one query."""
    ids = list(keys)
    for first in range(0, len(ids), AT_ONCE):
        yield ids[first : first + AT_ONCE]


def _lines_of(run_id: UUID) -> dict[int, RunLine]:
    """Return the verified rows of a run's lines, by number."""
    columns = [field.attname for field in RunLine._meta.concrete_fields]
    # What `protection_of` needs of the run.
    columns += ["run__encrypted", "run__hash_key"]
    lines = RunLine.objects.filter(run=run_id).select_related("run").only(*columns)
    rows = {row.number: row for row in lines}
    for row in rows.values():
        sealed_rows.verify_row(row, protection_of(row.run))
    return rows


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
