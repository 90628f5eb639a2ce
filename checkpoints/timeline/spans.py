"""Which rows of a run a line counts: its own, and those of its ancestors up to the seq where it left them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from checkpoints.lines import FARTHEST, Stretch, ancestry
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import InvalidValue

Among = QuerySet[Run] | None
"""The runs that may be seen; None: all."""

Spans = tuple[tuple[int, int | None], ...]
"""(line, last seq that counts; None: no end), from the line itself to its oldest ancestor."""


def spans_of(run_id: UUID, line: int, upto: int | None = None) -> Spans:
    """The spans of a line, up to a seq: of its own or of an ancestor. One query, none on the first line."""
    spans = ancestry(run_id, line)
    if upto is None:
        return spans
    return tuple((number, upto if last is None else min(last, upto)) for number, last in spans)


def check_among(among: Any) -> None:
    """Raise `InvalidValue` for what is no query of runs."""
    if among is not None and not (isinstance(among, QuerySet) and among.model is Run):
        raise InvalidValue("among is a query of runs, or nothing", path="among")


def within_spans(spans: Spans) -> Q:
    """The rows of these spans of one run."""
    wanted = Q(pk__in=[])
    for line, upto in spans:
        wanted |= Q(line=line) if upto is None else Q(line=line, seq__lte=upto)
    return wanted


def origin_of(run: Run, among: Among) -> Checkpoint | None:
    """The checkpoint that a fork comes from, with its run; None where there is none, or its run is not `among` those
    that may be seen. One query.
    """
    if run.origin_checkpoint is None:
        return None
    found = Checkpoint.objects.filter(id=run.origin_checkpoint)
    if among is not None:
        found = found.filter(run__in=among)
    return found.select_related("run").defer("change", "snapshot").first()


Known = dict[UUID, dict[int, RunLine]]
"""Rows of lines by run and number."""


def lines_behind(runs: Sequence[Run], among: Among) -> Known:
    """The lines of these runs, and of their origins as far as those may be seen. A query a level of origins for all of
    them, none where no run has one and all are on their first line. Raises `TamperedRow`, `WrongKey`.
    """
    known: Known = {}
    wanted = {run.id for run in runs if run.origin_checkpoint is not None or run.line > 1}
    began = {run.id for run in runs} - wanted
    for _ in range(FARTHEST):
        if not wanted:
            break
        known |= {run: {} for run in wanted}
        rows = RunLine.objects.filter(run__in=wanted).select_related("run")
        if among is not None:
            rows = rows.filter(Q(number__gt=1) | Q(departure_run__in=among.values("id")))
        for row in rows.defer(*(f"run__{name}" for name in ("input", "error", "progress"))):
            sealed_rows.verify_row(row, protection_of(row.run))
            known[row.run_id][row.number] = row
        wanted = {lines[1].departure_run for lines in known.values() if 1 in lines} - known.keys() - began
    return known


def past_of(run: Run, known: Known) -> list[Stretch]:
    """The stretches that lead to the end of a run's current line, the oldest first; no query."""
    found = [Stretch(run.id, run.line, None)]
    while len(found) < FARTHEST and (row := known.get(found[-1].run, {}).get(found[-1].line)) is not None:
        found.append(Stretch(row.departure_run, row.parent_line, row.departure_seq))
    return found[::-1]
