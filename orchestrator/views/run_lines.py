"""The lines of a run as its page shows them: the current one, the superseded ones, and
the reason why the run rests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from checkpoints import lines
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run
from orchestrator.views.run_timeline import TimelineColumn

Way = Sequence[tuple[int, int | None]]
"""(line, last seq that counts), the current line first."""


@dataclass(frozen=True, slots=True)
class SupersededTape:
    """The columns of a superseded line. `before` and `after` count the empty columns
    beside them, so that they stand below those of the line that counts.
    """

    line: int
    left_at: int
    before: range
    columns: list[TimelineColumn]
    after: range


@dataclass(frozen=True, slots=True)
class Standstill:
    """The reason why a paused run waits without asking people: nodes that need a yes;
    without any, a start that is missing.
    """

    nodes: tuple[str, ...]


def way_of(run: Run) -> Way:
    """Return the way to the run's newest checkpoint through its lines. One query, none
    on the first line.
    """
    return lines.ancestry(run.id, run.line)


def is_superseded(row: Checkpoint, way: Way) -> bool:
    """Return whether the run abandoned the checkpoint when it went back."""
    last_by_line = dict(way)
    if row.line not in last_by_line:
        return True
    # The current line has no last checkpoint: all of it counts.
    last = last_by_line[row.line]
    return last is not None and row.seq > last


def split_columns(
    columns: Sequence[TimelineColumn],
    rows: Sequence[Checkpoint],
    way: Way,
) -> tuple[list[TimelineColumn], list[SupersededTape]]:
    """Return the columns of the current line, and the tapes of the superseded ones,
    both in the order of time.
    """
    columns_by_line: dict[int, list[TimelineColumn]] = {}
    current: list[TimelineColumn] = []
    for column, row in zip(columns, rows, strict=True):
        if not is_superseded(row, way):
            current.append(column)
            continue
        superseded = replace(column, superseded=True)
        of_line = columns_by_line.setdefault(row.line, [])
        of_line.append(superseded)

    tapes: list[SupersededTape] = []
    for line, of_line in columns_by_line.items():
        tapes.append(_tape(line, of_line, current))
    return current, tapes


def _tape(
    line: int,
    columns: list[TimelineColumn],
    current: Sequence[TimelineColumn],
) -> SupersededTape:
    first = columns[0].seq
    earlier = [column.seq for column in current if column.seq < first]
    before = len(earlier)
    after = len(current) - before - len(columns)
    return SupersededTape(
        line,
        left_at=max(earlier, default=0),
        before=range(before),
        columns=columns,
        after=range(after),
    )


def standing_kind(still: Standstill | None, *, asks: bool) -> str:
    """Return the standing of a paused run that asks nobody: "not_started" or
    "needs_yes"; "" for any other run.
    """
    if still is None or asks:
        return ""
    if still.nodes:
        return "needs_yes"
    return "not_started"


def standstill_of(run: Run, *, asks: bool) -> Standstill | None:
    """Return why the run rests; None if it does not, or only waits for people.

    `asks`: it asks people something. One query, none for a run that never departed.
    Raises `TamperedRow` or `WrongKey` if its line is not as it was.
    """
    if run.status != Status.PAUSED or _never_departed(run):
        return None
    stops: Sequence[str] = ()
    row = lines.line_row(run, run.line)
    if row is not None:
        stops = row.stops
    if lines.NOT_STARTED in stops:
        return Standstill(())

    nodes = tuple(node for node in run.at_node.split(", ") if node in stops)
    if nodes:
        return Standstill(nodes)
    # It is at no node and asks nobody, so only a start gets it going.
    if not asks and not run.at_node:
        return Standstill(())
    return None


def _never_departed(run: Run) -> bool:
    return run.line == 1 and run.origin_checkpoint is None
