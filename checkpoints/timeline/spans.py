"""Which rows of a run a line counts: its own, and those of its ancestors up to the seq where it left them."""

from uuid import UUID

from django.db.models import Q, QuerySet

from checkpoints.lines import ancestry
from checkpoints.models import Checkpoint, Run

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
