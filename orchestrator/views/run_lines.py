"""The lines of a run as its page shows them: the one that counts, those that were left, and why the run rests on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from checkpoints import lines
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run
from orchestrator.views.run_timeline import Column

Way = Sequence[tuple[int, int | None]]
"""(line, last seq that counts), the current line first."""


@dataclass(frozen=True, slots=True)
class SupersededTape:
    """The columns of a line that was left, behind as many empty ones as stand before its departure on the tape of the
    line that counts.
    """

    line: int
    left_at: int
    before: range
    columns: list[Column]
    after: range


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why a paused run waits though it asks nobody: nodes that need a yes, or, with none, that nobody started it."""

    nodes: tuple[str, ...]


def way_of(run: Run) -> Way:
    """The way to the run's newest checkpoint through its lines. One query, none on the first line."""
    return lines.ancestry(run.id, run.line)


def is_superseded(row: Checkpoint, way: Way) -> bool:
    """Whether the run left the checkpoint behind when it went back."""
    known = dict(way)
    last = known.get(row.line, -1)
    return last is not None and row.seq > last


def split_columns(
    columns: Sequence[Column], rows: Sequence[Checkpoint], way: Way
) -> tuple[list[Column], list[SupersededTape]]:
    """The columns of the line that counts, and the tapes of those that were left. Both come in the order of time."""
    left: dict[int, list[Column]] = {}
    main: list[Column] = []
    for column, row in zip(columns, rows, strict=True):
        if is_superseded(row, way):
            left.setdefault(row.line, []).append(replace(column, superseded=True))
        else:
            main.append(column)
    return main, [_tape(line, found, main) for line, found in left.items()]


def _tape(line: int, columns: list[Column], main: Sequence[Column]) -> SupersededTape:
    before = sum(1 for column in main if column.seq < columns[0].seq)
    left_at = max((column.seq for column in main if column.seq < columns[0].seq), default=0)
    return SupersededTape(line, left_at, range(before), columns, range(len(main) - before - len(columns)))


def standing_kind(still: Standstill | None, *, asks: bool) -> str:
    """Return how a paused run is called that asks nobody: "not_started", "needs_yes", or "" for any other."""
    if still is None or asks:
        return ""
    return "needs_yes" if still.nodes else "not_started"


def standstill_of(run: Run, *, asks: bool) -> Standstill | None:
    """Why the run rests; None where it does not, or only people are waited for. `asks`: it asks people something. One
    query, none for a run that never departed. Raises `TamperedRow` or `WrongKey` where its line is not as it was.
    """
    if run.status != Status.PAUSED or (run.line == 1 and run.origin_checkpoint is None):
        return None
    row = lines.line_row(run, run.line)
    if row is not None and lines.NOT_STARTED in row.stops:
        return Standstill(())
    stops = tuple(node for node in run.at_node.split(", ") if row is not None and node in row.stops)
    return Standstill(stops) if stops or not (asks or run.at_node) else None
