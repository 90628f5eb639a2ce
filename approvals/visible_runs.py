"""The runs that a person may see, as lists read them: a page at a time, filtered by
graph, status and moment of start, however many runs there are.

Whose runs they are is as in `approvals.permissions`. Never changes anything.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from approvals.models import RequestReviewer
from approvals.permissions import (
    has_role,
    may,
    principals_of,
    principals_unless_all,
    visible_among,
)
from checkpoints.db.counts import select_rows
from checkpoints.db.first_rows import SOURCE, all_of, each_source, first_of_each
from checkpoints.db.large_reads import Unindexed
from checkpoints.models import Run

NEWEST_FIRST = ("-created_at", "-id")
COPIES = {
    "created_at": "run_created_at",
    "id": "run",
    "graph": "run_graph",
    "status": "run_status",
}
"""Column of runs -> its copy in the rows of reviewers: see `approvals.list_columns`."""


@dataclass(frozen=True, slots=True)
class VisibleRuns:
    """Those of some runs that a user may see, in the order of their start, of which only
    a page is read: a slice is the query of its rows.

    Pages of the API use it like a query. `bounds` are lookups of graph and start, and
    `statuses` those that the runs have, None for any; both are in the indexes, while
    conditions of `runs` are looked at run by run. `few`: the runs are few, so that each
    is judged by itself. `principals` are those of the user when the list was begun.
    """

    user: Any
    principals: Sequence[str]
    runs: "QuerySet[Run]"
    bounds: Mapping[str, Any]
    statuses: Collection[str] | None = None
    order: Sequence[str] = NEWEST_FIRST
    few: bool = False

    @classmethod
    def of(cls, user: Any, runs: "QuerySet[Run]") -> "VisibleRuns":
        """Return the runs among these that the user may see, the newest first. Reads
        the user's principals, unless he may see all.
        """
        principals = principals_unless_all(user)
        return cls(user, principals or [], runs, {})

    def order_by(self, *order: str) -> "VisibleRuns":
        """Return the same runs in this order, of `created_at` and `id`; in any order
        without these.
        """
        return replace(self, order=order)

    def filter(self, **bounds: Any) -> "VisibleRuns":
        """Return those within these bounds of `graph` and `created_at`."""
        return replace(self, bounds={**self.bounds, **bounds})

    def with_status(self, statuses: Collection[str]) -> "VisibleRuns":
        """Return those with one of these statuses."""
        return replace(self, statuses=statuses)

    def where(self, *conditions: Q) -> "VisibleRuns":
        """Return those that meet conditions for which there is no index: runs are looked
        at in their order until a page is full.
        """
        return replace(self, runs=self.runs.filter(*conditions))

    def only(self, *columns: str) -> "VisibleRuns":
        """Return the same runs with these columns."""
        return replace(self, runs=self.runs.only(*columns))

    def named_by(self, *conditions: Q) -> "VisibleRuns":
        """Return those that meet conditions that only few runs meet, whoever may see
        them: each of these is judged separately.
        """
        return replace(self, runs=self.runs.filter(*conditions), few=True)

    @property
    def is_merged(self) -> bool:
        """Return whether a page is made from the first rows of several lists: see
        `checkpoints.db.large_reads.first_rows`.
        """
        return not (self.few or self._sees_all_or_none)

    def __getitem__(self, part: slice) -> "QuerySet[Run]":
        if not self.is_merged:
            runs = self._with_bounds(self.runs, few=self.few).order_by(*self.order)
            visible = visible_among(self.user, runs, principals=self.principals)
            return visible[part]

        # Each way to see a run has its index in this order, of which the first rows
        # suffice.
        ways = []
        statuses: Collection[str | None] = self.statuses or [None]
        for status in statuses:
            rows = self._reviewers(status)
            ways.append(first_of_each(self.principals, rows, "run", part.stop))
        of_user = self.runs.filter(started_by=self.user).order_by(*self.order)
        started = self._with_bounds(of_user, few=True).values("id")[: part.stop]
        # The bounds decided which rows are in the list. Here they would let SQLite walk
        # an index of all runs within them, in search of the few that are.
        few_runs = self.runs.filter(id__in=all_of(ways, also=started))
        return few_runs.order_by(*self.order)[part]

    @property
    def _sees_all_or_none(self) -> bool:
        """Return whether rows of reviewers decide nothing for this user."""
        if not self.user.is_active or not self.user.is_authenticated:
            return True
        return may(self.user, "view_run")

    def _with_bounds(self, runs: "QuerySet[Run]", *, few: bool) -> "QuerySet[Run]":
        """Return the runs among these that are within the bounds. `few`: an index has
        these runs, while those of graphs and statuses have the runs of everybody.
        """
        column = Unindexed if few else F
        runs = runs.alias(bound_graph=column("graph"), bound_status=column("status"))
        for lookup, value in self.bounds.items():
            runs = runs.filter(**{lookup.replace("graph", "bound_graph"): value})
        if self.statuses is None:
            return runs
        return runs.filter(bound_status__in=self.statuses)

    def _reviewers(self, status: str | None) -> "QuerySet[RequestReviewer, Any]":
        """Return the rows that show these runs to a principal, each run once."""
        reviewers = RequestReviewer.objects.filter(
            principal=SOURCE, run_status__isnull=False
        )
        if status is not None:
            reviewers = reviewers.filter(run_status=status)
        for lookup, value in self.bounds.items():
            reviewers = reviewers.filter(**{_copied(lookup): value})
        if self.runs.query.where:
            matching = self.runs.order_by().filter(id=OuterRef("run"))
            reviewers = reviewers.filter(Exists(matching))
        order = []
        for column in self.order or NEWEST_FIRST:
            sign = "-" if column.startswith("-") else ""
            order.append(sign + COPIES[column.removeprefix("-")])
        return reviewers.order_by(*order)


def _copied(lookup: str) -> str:
    """Return the lookup of the copy of a column."""
    column, separator, operator = lookup.partition("__")
    return f"{COPIES[column]}{separator}{operator}"


def visible_graphs(user: Any) -> set[str]:
    """Return the names of the graphs of the runs that this user, who has no role, may
    see. Two queries, of which one reads a row for each name and principal.
    """
    if has_role(user):
        raise ValueError("who has a role may choose among all graphs")
    if not user.is_active or not user.is_authenticated:
        return set()
    started = Run.objects.filter(started_by=user).order_by()
    graphs = set(started.values_list("graph", flat=True).distinct())
    return graphs | set(_graphs_reviewed(principals_of(user)))


def _graphs_reviewed(principals: Sequence[str]) -> Iterator[str]:
    """Yield the names of the graphs of runs that name one of these. Each name is found
    as the first one after another, so that the runs between them are not read.
    """
    sources = each_source(principals)
    reviewers = connection.ops.quote_name(RequestReviewer._meta.db_table)
    # The text has no value of anybody's in it.
    first_name = (
        f"SELECT MIN(run_graph) FROM {reviewers} "  # noqa: S608
        "WHERE run_status IS NOT NULL AND principal"
    )
    text = (
        "WITH RECURSIVE named(principal, graph) AS ("  # noqa: S608
        f"SELECT source.value, ({first_name} = source.value) FROM {sources.sql} "
        f"UNION ALL SELECT principal, ({first_name} = named.principal "
        "AND run_graph > named.graph) FROM named WHERE graph IS NOT NULL"
        ") SELECT DISTINCT graph FROM named WHERE graph IS NOT NULL"
    )
    for (graph,) in select_rows(text, sources.params):
        yield graph
