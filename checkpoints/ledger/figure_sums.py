"""Sums of figures by run, graph or day, over a number of days. They read one index, and
of it only the entries of those days and that graph.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from django.db.models import Q, QuerySet, Sum, UUIDField
from django.db.models.functions import Coalesce

from checkpoints.models import TaskFigure
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen

GROUPS: dict[str, tuple[str, ...]] = {
    "day": ("-day", "graph", "name"),
    "graph": ("graph", "name"),
    "run": ("-of_run", "graph", "name"),
}
"""The columns of one sum by the word for its grouping, in the order of the list. Ids of
runs sort by time.
"""
MOST_DAYS = 366
DAYS = 30
"""The number of days that are summed if no first day is chosen."""


@frozen
class Range:
    """The figures to sum, and how to group them. Both days are included."""

    by: str
    graph: str
    first: date
    last: date

    @property
    def days(self) -> list[str]:
        """The days as the rows have them."""
        first = self.first.toordinal()
        last = self.last.toordinal()
        ordinals = range(first, last + 1)
        return [date.fromordinal(ordinal).isoformat() for ordinal in ordinals]


def checked_range(
    by: str,
    graph: str,
    first: date | None = None,
    last: date | None = None,
) -> Range:
    """Return the range: without a last day up to today (UTC), without a first one the
    last `DAYS`. Raises `InvalidValue`.
    """
    if by not in GROUPS:
        raise InvalidValue(f"figures are summed by {', '.join(GROUPS)}", path="by")
    if last is None:
        today = datetime.now(UTC).date()
        last = max(first or date.min, today)
    if first is None:
        # Not before the first day that there is.
        first_ordinal = max(1, last.toordinal() - DAYS + 1)
        first = date.fromordinal(first_ordinal)
    if first > last:
        raise InvalidValue("the first day comes after the last", path="from")
    if (last - first).days >= MOST_DAYS:
        raise InvalidValue(f"at most {MOST_DAYS} days are summed", path="from")
    return Range(by, graph, first, last)


def sums_of(figures: "QuerySet[TaskFigure]", sum_range: Range) -> "QuerySet[Any, Any]":
    """Return the sums of these figures in millionths, as {name, sum, …} with the
    other columns of their grouping. One query.
    """
    # Each day is named: an index that begins with the days then goes on with the graph.
    rows = figures.filter(day__in=sum_range.days)
    if sum_range.graph:
        rows = rows.filter(graph=sum_range.graph)
    order = GROUPS[sum_range.by]
    columns = [column.removeprefix("-") for column in order]
    # As an expression, for which no index is in order: else PostgreSQL goes through the
    # figures of all days by run.
    rows = rows.annotate(of_run=Coalesce("run_id", "run_id", output_field=UUIDField()))
    sums: QuerySet[Any, Any] = (
        rows.order_by(*order).values(*columns).annotate(sum=Sum("millionths"))
    )
    return sums


def after(
    rows: "QuerySet[Any, Any]",
    by: str,
    position: Sequence[str],
) -> "QuerySet[Any, Any]":
    """Return the sums among these that follow the one with these values in the columns
    of `GROUPS`.
    """
    following = Q(pk__in=[])
    # The first column in which a sum differs decides whether it follows.
    same_so_far = Q()
    for column, value in zip(GROUPS[by], position, strict=True):
        name = column.removeprefix("-")
        comparison = "lt" if column.startswith("-") else "gt"
        following |= same_so_far & Q(**{f"{name}__{comparison}": value})
        same_so_far &= Q(**{name: value})
    return rows.filter(following)
