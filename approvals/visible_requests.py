"""The requests of the runs that a person may see, as a list reads them: a page at a
time, filtered by graph and moment, however many requests there are.

Whose they are is as in `approvals.permissions`. Never changes anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.expressions import RawSQL

from approvals.inbox import listed
from approvals.list_columns import RUN, starter_principal
from approvals.models import ApprovalRequest, RequestReviewer, RequestViewer
from approvals.permissions import may, principals_of, visible_among
from checkpoints.db.first_rows import (
    SOURCE,
    all_of,
    each_source,
    first_of_all,
    first_of_each,
)
from checkpoints.models import Run

NEWEST_FIRST = ("-opened_at", "-id")


@dataclass(frozen=True, slots=True)
class VisibleRequests:
    """Every request of the runs that a user may see, the newest first, of which only a
    page is read: a slice is the query of its rows.

    Pages of the API use it like a query. `bounds` are lookups of `graph` and
    `opened_at`.
    """

    user: Any
    bounds: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = NEWEST_FIRST

    def order_by(self, *order: str) -> "VisibleRequests":
        """Return the same requests in this order, of `opened_at` and `id`."""
        return replace(self, order=order)

    def filter(self, **bounds: Any) -> "VisibleRequests":
        """Return those within these bounds of `graph` and `opened_at`."""
        return replace(self, bounds={**self.bounds, **bounds})

    @property
    def is_merged(self) -> bool:
        """Return whether a page is made from the first rows of several lists: see
        `checkpoints.db.large_reads.first_rows`.
        """
        return not may(self.user, "view_run")

    def __getitem__(self, part: slice) -> "QuerySet[ApprovalRequest]":
        if not self.user.is_active or not self.user.is_authenticated:
            return ApprovalRequest.objects.none()
        if may(self.user, "view_run"):
            requests = ApprovalRequest.objects.filter(**self.bounds)
        else:
            requests = self._first_ones(part.stop)
        return listed(requests).order_by(*self.order)[part]

    def _first_ones(self, number: int | None) -> "QuerySet[ApprovalRequest]":
        """Return at least so many requests that the user may see, all without one."""
        viewers = RequestViewer.objects.filter(principal=SOURCE, **self.bounds)
        names = {"id": "request_id", "-id": "-request_id"}
        order = [names.get(column, column) for column in self.order]
        ordered = viewers.order_by(*order)
        principals = principals_of(self.user)
        named = first_of_each(
            [*principals, starter_principal(self.user.pk)],
            ordered,
            "request_id",
            number,
        )
        # Whoever stands in such a run sees it, so that no other row is needed.
        by_run = first_of_all(_runs_of(principals), ordered, "request_id", number)
        ids = all_of([named, by_run])
        return of_visible_runs(
            self.user,
            ApprovalRequest.objects.filter(id__in=ids),
            principals=principals,
        )


def of_visible_runs(
    user: Any,
    requests: "QuerySet[ApprovalRequest]",
    *,
    principals: Sequence[str] | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return those of these few requests whose runs this user may see: the run of each
    is looked at by itself. `principals` are the user's, where the caller has just read
    them.
    """
    run = Run.objects.filter(id=OuterRef("run"))
    visible = visible_among(user, run, principals=principals)
    return requests.filter(Exists(visible))


def _runs_of(principals: Sequence[str]) -> RawSQL:
    """Return the table `source` of the runs by which these see requests, as principals
    of viewers.
    """
    named = each_source(principals)
    reviewers = connection.ops.quote_name(RequestReviewer._meta.db_table)
    # The text has no value of anybody's in it.
    text = (
        # Several of the principals may stand in one run.
        f"(SELECT DISTINCT '{RUN}' || reviewer.run AS value FROM {named.sql} "  # noqa: S608
        f"CROSS JOIN {reviewers} reviewer "
        "WHERE reviewer.principal = source.value AND reviewer.by_run) AS source"
    )
    return RawSQL(text, named.params)  # noqa: S611
