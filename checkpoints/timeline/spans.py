"""The spans of a line: its own rows, and those of its ancestors in the same run up to
the seq where it left them.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from checkpoints.lines import FARTHEST, Stretch, ancestry
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import InvalidValue

Among = QuerySet[Run] | None
"""The runs that may be seen; None: all."""

Spans = tuple[tuple[int, int | None], ...]
"""(line, last seq that counts; None: no end), from the line itself to its oldest
ancestor.
"""


def spans_of(
    run_id: UUID,
    line: int,
    upto: int | None = None,
) -> Spans:
    """Return the spans of a line, up to one of its seqs or an ancestor's. One query,
    none on the first line.
    """
    spans = ancestry(run_id, line)
    if upto is None:
        return spans
    # Ancestors that the line left before `upto` end where it left them.
    cut_spans = []
    for number, last in spans:
        cut_spans.append((number, upto if last is None else min(last, upto)))
    return tuple(cut_spans)


def check_among(among: Any) -> None:
    """Raise `InvalidValue` for anything but a query of runs or None."""
    if among is None:
        return
    if not (isinstance(among, QuerySet) and among.model is Run):
        raise InvalidValue("among is a query of runs, or nothing", path="among")


def within_spans(spans: Spans) -> Q:
    """Build the filter for the rows of these spans of one run."""
    # Matches no row, so that spans can be added; an empty `Q` would match all.
    rows = Q(pk__in=[])
    for line, upto in spans:
        if upto is None:
            rows |= Q(line=line)
        else:
            rows |= Q(line=line, seq__lte=upto)
    return rows


def is_within(seq: int, line: int, spans: Spans) -> bool:
    """Return whether a checkpoint belongs to these spans of its run."""
    return any(
        line == number and (upto is None or seq <= upto) for number, upto in spans
    )


def origin_of(
    run: Run,
    among: Among,
) -> Checkpoint | None:
    """Return the checkpoint that a fork comes from, with its run; None if there is
    none, or its run is not `among` those that may be seen. One query.
    """
    if run.origin_checkpoint is None:
        return None
    origin = Checkpoint.objects.filter(id=run.origin_checkpoint)
    if among is not None:
        origin = origin.filter(Exists(among.filter(id=OuterRef("run"))))
    return origin.select_related("run").defer("change", "snapshot").first()


Known = dict[UUID, dict[int, RunLine]]
"""The rows of lines, by run and number."""


def lines_behind(
    runs: Sequence[Run],
    among: Among,
) -> Known:
    """Return the lines of these runs, and of their origins as far as those may be seen.

    A query for each level of origins, for all runs together; none if no run has an
    origin and all are on their first line. Raises `TamperedRow`, `WrongKey`.
    """
    lines_by_run: Known = {}
    # The first line of a run without an origin has no past.
    to_read = {
        run.id for run in runs if run.origin_checkpoint is not None or run.line > 1
    }
    without_past = {run.id for run in runs} - to_read
    for _ in range(FARTHEST):
        if not to_read:
            break
        for run in to_read:
            lines_by_run[run] = {}
        for row in _visible_lines(to_read, among):
            sealed_rows.verify_row(row, protection_of(row.run))
            lines_by_run[row.run_id][row.number] = row
        to_read = _origins_of(lines_by_run) - lines_by_run.keys() - without_past
    return lines_by_run


def _visible_lines(
    runs: Collection[UUID],
    among: Among,
) -> "QuerySet[RunLine]":
    """Return the lines of these runs, without first lines that lead to a run that may
    not be seen.
    """
    rows = RunLine.objects.filter(run__in=runs).select_related("run")
    if among is not None:
        # One look for each line: behind an OR the database would list all of `among`.
        departs_from_visible = Exists(among.filter(id=OuterRef("departure_run")))
        # Later lines depart from their run itself, which may be seen.
        rows = rows.filter(Q(number__gt=1) | Q(departs_from_visible))
    return rows.defer("run__input", "run__error", "run__progress")


def _origins_of(lines_by_run: Known) -> set[UUID]:
    """Return the runs that the first lines of these runs departed from."""
    origins = set()
    for lines in lines_by_run.values():
        if 1 in lines:
            origins.add(lines[1].departure_run)
    return origins


def past_of(
    run: Run,
    lines_by_run: Known,
) -> list[Stretch]:
    """Return the stretches that lead to the end of a run's current line, the oldest
    first; no query.
    """
    stretches = [Stretch(run.id, run.line, None)]
    while len(stretches) < FARTHEST:
        oldest = stretches[-1]
        row = lines_by_run.get(oldest.run, {}).get(oldest.line)
        if row is None:
            break
        stretches.append(Stretch(row.departure_run, row.parent_line, row.departure_seq))
    return stretches[::-1]
