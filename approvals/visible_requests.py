"""The requests of the runs that a person may see, as a list reads them: a page at a
time, filtered by graph and moment, however many requests there are.

Whose they are is as in `approvals.permissions`. Never changes anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from approvals.inbox import listed
from approvals.list_columns import STARTER
from approvals.models import ApprovalRequest, RequestViewer
from approvals.permissions import may, principals_of, visible_among
from checkpoints.db.first_rows import SOURCE, first_of_each
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
        principals = principals_of(self.user)
        ids = first_of_each(
            [*principals, _as_starter(self.user)],
            viewers.order_by(*order),
            "request_id",
            number,
        )
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


def _as_starter(user: Any) -> str:
    """Return the principal under which the requests of runs stand that the user
    started.
    """
    # As the database writes the id, which may be a UUID in another project.
    key = user._meta.pk.get_db_prep_value(user.pk, connection)
    return f"{STARTER}{key}"
