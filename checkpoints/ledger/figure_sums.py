"""Sums of figures by run, graph or day, over a number of days. They read one index, and of it the entries of the days
and the graph that were asked for.
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
"""What sums can be told by -> the columns of one sum, in the order of the list. Ids of runs sort by time."""
MOST_DAYS = 366
DAYS = 30
"""Days that are summed where nothing is said of the first."""


@frozen
class Range:
    """Which figures are summed, and by what. Both days belong to it."""

    by: str
    graph: str
    first: date
    last: date

    @property
    def days(self) -> list[str]:
        """Each day, as rows have them."""
        ordinals = range(self.first.toordinal(), self.last.toordinal() + 1)
        return [date.fromordinal(ordinal).isoformat() for ordinal in ordinals]


def checked_range(by: str, graph: str, first: date | None = None, last: date | None = None) -> Range:
    """The range; without a last day up to today (UTC), without a first one `DAYS` of them. Raises `InvalidValue`."""
    if by not in GROUPS:
        raise InvalidValue(f"figures are summed by {', '.join(GROUPS)}", path="by")
    if last is None:
        last = max(first or date.min, datetime.now(UTC).date())
    if first is None:
        first = date.fromordinal(max(1, last.toordinal() - DAYS + 1))
    if first > last:
        raise InvalidValue("the first day lies behind the last", path="from")
    if (last - first).days >= MOST_DAYS:
        raise InvalidValue(f"at most {MOST_DAYS} days are summed", path="from")
    return Range(by, graph, first, last)


def sums_of(figures: "QuerySet[TaskFigure]", asked: Range) -> "QuerySet[Any, Any]":
    """The sums of these figures in millionths, as {name, sum, …} with what else they are told by. One query."""
    # Each day is named: an index that begins with the days then goes on with the graph.
    rows = figures.filter(day__in=asked.days)
    if asked.graph:
        rows = rows.filter(graph=asked.graph)
    order = GROUPS[asked.by]
    columns = [column.removeprefix("-") for column in order]
    # As an expression, for which no index is in order: else PostgreSQL goes through the figures of all days by run.
    rows = rows.annotate(of_run=Coalesce("run_id", "run_id", output_field=UUIDField()))
    sums: QuerySet[Any, Any] = rows.order_by(*order).values(*columns).annotate(sum=Sum("millionths"))
    return sums


def after(rows: "QuerySet[Any, Any]", by: str, position: Sequence[str]) -> "QuerySet[Any, Any]":
    """Of these sums those that follow the one with these values in the columns of `GROUPS`."""
    behind, same = Q(pk__in=[]), Q()
    for column, value in zip(GROUPS[by], position, strict=True):
        name = column.removeprefix("-")
        behind |= same & Q(**{f"{name}__{'lt' if column != name else 'gt'}": value})
        same &= Q(**{name: value})
    return rows.filter(behind)
