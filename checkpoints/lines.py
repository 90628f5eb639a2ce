"""The lines of runs: where each departed, and which rows of a run, its older lines and its origins lie before a point.

Whatever asks "what happened on the way to this checkpoint" asks here. Reads only; `ledger.departure` begins lines.
A row that is not as it was written, or is gone, raises `TamperedRow`, or `WrongKey`.
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
"""Why there is a first checkpoint of a run that came from another."""
NOT_STARTED = "*"
"""Among the stops of a line: no node starts, until somebody resumes the run."""
FARTHEST = 100
"""So many origins are followed: forks of forks of forks."""
AT_ONCE = 1000
"""So many runs are named in one query: a database takes no list of any length."""


@frozen
class Stretch:
    """A line of a run as far as it counts: up to the checkpoint of seq `last`; None: to its end."""

    run: UUID
    line: int
    last: int | None


def ancestry(run_id: UUID, line: int) -> tuple[tuple[int, int | None], ...]:
    """(line, last seq that counts), from the line itself, of which everything counts (None), to its oldest ancestor of
    the same run. One query, none on the first line.
    """
    return tuple((one.line, one.last) for one in _own(run_id, line, _lines_of(run_id) if line > 1 else {}))


def past(run_id: UUID, line: int, last: int | None = None, *, known: Run | None = None) -> list[Stretch]:
    """The way to checkpoint `last` of a line: the line itself, its ancestors, then those of the origins, each as far as
    it counts, the newest first. A query an origin, and one that the first run was started, unless its row is `known`.
    """
    found: list[Stretch] = []
    for _ in range(FARTHEST):
        rows = _lines_of(run_id)
        found += _own(run_id, line, rows, last)
        origin = rows.get(1)
        if origin is None:
            _require_started(run_id, known)
            return found
        run_id, line, last = origin.departure_run, origin.parent_line, origin.departure_seq
    raise WrongStatus(f"more than {FARTHEST} forks lie one behind the other before run {run_id}", run=str(run_id))


def _require_started(run_id: UUID, known: Run | None) -> None:
    """Raise where a run without a row for its first line is a fork."""
    if known is None or known.id != run_id:
        known = Run.objects.filter(id=run_id).only("id", "key", "origin_checkpoint", "encrypted", "hash_key").first()
    if known is None:
        return
    if known.origin_checkpoint is not None:
        raise TamperedRow(f"the row of line 1 of run {run_id} is gone", run=str(run_id))
    require_started(known)


def require_started(run: "Lined", *, first: Checkpoint | None = None) -> None:
    """Raise `TamperedRow` where a run whose row names no origin began as a fork or a replay, as sealed rows say; and
    `WrongKey`. `first` is a verified row of it that may be its first checkpoint: then there is no query, else one, or
    two where retention removed the first checkpoint.
    """
    if first is None or first.seq != 0:
        first = Checkpoint.objects.filter(run=run.id, seq=0).defer("change", "snapshot").first()
        if first is not None:
            sealed_rows.verify_row(first, protection_of(run))
    departed = first.source in DEPARTED if first is not None else _began_elsewhere(run)
    if departed:
        message = f"run {run.key} names no checkpoint that it came from, but it began as a fork or a replay"
        raise TamperedRow(message, run=str(run.id))


def _began_elsewhere(run: "Lined") -> bool:
    """Return whether the first line of a run's log says that it departed from another run."""
    line = RunEvent.objects.filter(run=run.id, seq=1).first()
    if line is None:
        raise TamperedRow(f"nothing says how run {run.key} began: its first log entry is gone", run=str(run.id))
    sealed_rows.verify_row(line, protection_of(run))
    return "departure" in sealed_columns.read_value(line, "payload")


def within(stretches: Sequence[Stretch], *, seq: str = "seq") -> Q:
    """The filter for rows with columns run, line and `seq` (the checkpoint that lists them) on these stretches."""
    wanted = Q(pk__in=[])
    for one in stretches:
        upto = {} if one.last is None else {f"{seq}__lte": one.last}
        wanted |= Q(run=one.run, line=one.line, **upto)
    return wanted


class Lined(Protected, Protocol):
    """A run, or whoever holds it."""

    @property
    def id(self) -> UUID: ...
    @property
    def key(self) -> str: ...
    @property
    def origin_checkpoint(self) -> UUID | None: ...


def logged_until(one: Stretch) -> int | None:
    """Where the log of the stretch's run stood at its last checkpoint; None where all of the line counts."""
    if one.last is None:
        return None
    rows = Checkpoint.objects.filter(run=one.run, seq=one.last)
    return rows.values_list("event_seq", flat=True).first() or 0


def line_row(run: Lined, number: int) -> RunLine | None:
    """How a line of a run began; None for the first of a run that was started. Raises `TamperedRow` where its row is
    not as it was written or is gone, `WrongKey`.
    """
    if number == 1 and run.origin_checkpoint is None:
        return None
    row = RunLine.objects.filter(run=run.id, number=number).first()
    if row is None:
        raise TamperedRow(f"the row of line {number} of run {run.key} is gone", run=str(run.id))
    sealed_rows.verify_row(row, protection_of(run))
    return row


def forks_of(run_id: UUID) -> "QuerySet[RunLine, UUID]":
    """The ids of the runs that were forked or replayed from a checkpoint of this one, as a subquery."""
    return RunLine.objects.filter(departure_run=run_id, number=1).order_by().values_list("run", flat=True)


def forks_below(runs: Collection[UUID], *, nearest: Collection[UUID]) -> list[UUID]:
    """The runs that were forked or replayed from these, the `nearest`, from those again, and so on: a replay has no
    outside, its forks have. One query a generation of up to a thousand, and one that finds no more.
    """
    level = [run for run in dict.fromkeys(nearest) if run not in runs]
    found = dict.fromkeys(level)
    while level:
        below: list[UUID] = []
        for some in in_parts(level):
            rows = RunLine.objects.filter(departure_run__in=some, number=1).order_by("id")
            below += rows.values_list("run", flat=True)
        level = [run for run in dict.fromkeys(below) if run not in found and run not in runs]
        found |= dict.fromkeys(level)
    return [*found]


def in_parts(keys: Collection[Key]) -> Iterator[list[Key]]:
    """These ids or numbers, so many at a time as one query may name."""
    ids = list(keys)
    for first in range(0, len(ids), AT_ONCE):
        yield ids[first : first + AT_ONCE]


def _lines_of(run_id: UUID) -> dict[int, RunLine]:
    own = [field.attname for field in RunLine._meta.concrete_fields]
    found = RunLine.objects.filter(run=run_id).select_related("run").only(*own, "run__encrypted", "run__hash_key")
    rows = {row.number: row for row in found}
    for row in rows.values():
        sealed_rows.verify_row(row, protection_of(row.run))
    return rows


def _own(run_id: UUID, line: int, rows: dict[int, RunLine], last: int | None = None) -> list[Stretch]:
    found = [Stretch(run_id, line, last)]
    while line > 1:
        if line not in rows:
            raise TamperedRow(f"the row of line {line} of run {run_id} is gone", run=str(run_id))
        row = rows[line]
        line, last = row.parent_line, row.departure_seq
        found.append(Stretch(run_id, line, last))
    return found
