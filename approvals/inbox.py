"""Reads the requests that wait for a person, for pages and API. Changes nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import (
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
)
from django.db.models.expressions import RawSQL

from approvals.models import (
    ApprovalRequest,
    Decision,
    RequestReviewer,
    RequestSigner,
)
from approvals.permissions import (
    principals_of,
    principals_shown,
    visible_among,
)
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db.first_rows import SOURCE, first_of_each, number_of_first
from checkpoints.db.together import read_together
from checkpoints.models import Run
from checkpoints.queue import workers

MANY = 999
"""The highest count that the bar shows."""
NEWEST = 50
"""The newest changes by which an inbox is seen to have changed. More than one, because
of two changes at once the later one may be committed first.
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a person's inbox.

    `waiting`: the number of requests in it. `is_capped`: there are others beyond that
    number. `signed`: how many requests the person signed that are still open, at most
    one more than `MANY`. `mark`: changes with every row of the inbox.
    """

    waiting: int
    is_capped: bool
    signed: int
    mark: str


@dataclass(frozen=True, slots=True)
class BarFacts:
    """The facts in the bar of every page.

    `waiting`: how many requests wait for the person, at most one more than `MANY`.
    `silence`: since when no worker is alive, None while one is.
    """

    waiting: int
    silence: workers.Silence | None


@dataclass(frozen=True, slots=True)
class InboxPlace:
    """A place in a list of requests: what the list is ordered by, of the request before
    it. Lists of requests that a person signed have no deadline in their order.
    """

    deadline: datetime | None
    opened_at: datetime
    request: UUID

    def behind_in_inbox(self) -> Q:
        """Return the filter for reviewers after this place, by deadline, then by age;
        those without a deadline come last.
        """
        later = Q(opened_at__gt=self.opened_at)
        later |= Q(opened_at=self.opened_at, request__gt=self.request)
        # The bound on `opened_at` follows from the others, but an OR alone bounds no
        # range of an index.
        later &= Q(opened_at__gte=self.opened_at)
        if self.deadline is None:
            return Q(later, deadline__isnull=True)
        less_urgent = Q(deadline__gt=self.deadline) | Q(deadline__isnull=True)
        return less_urgent | Q(later, deadline=self.deadline)

    def behind_in_signed(self) -> Q:
        """Return the filter for signers after this place, the newest request first."""
        earlier = Q(opened_at__lt=self.opened_at)
        earlier |= Q(request__lt=self.request, opened_at=self.opened_at)
        return earlier & Q(opened_at__lte=self.opened_at)


def waiting_for(
    user: Any,
    *,
    first: int | None = None,
    oldest_first: bool = False,
    beside: UUID | None = None,
    behind: InboxPlace | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the open requests that name this user, the most urgent first: by deadline,
    then by age; with `oldest_first` by age alone. Those of the run `beside` are left
    out. With `behind` only those after this place, of the order with deadlines.

    With `first` only so many are sure to be complete, and no others are read than the
    first of each of the user's principals. One query, besides those for the principals.

    A request from which four eyes exclude him is included, because he may watch it; see
    `permissions.may_decide`. The run comes with each request, without its payloads.
    """
    order: list[Any] = ["opened_at"]
    if not oldest_first:
        order.insert(0, F("deadline").asc(nulls_last=True))

    reviewers = RequestReviewer.objects.filter(principal=SOURCE, waits=True)
    if beside is not None:
        reviewers = reviewers.exclude(run=beside)
    if behind is not None:
        reviewers = reviewers.filter(behind.behind_in_inbox())
    ordered = reviewers.order_by(*order, "request_id")
    ids = first_of_each(
        principals_shown(user),
        ordered,
        "request_id",
        first,
    )
    waiting = ApprovalRequest.objects.filter(id__in=ids)
    return listed(waiting).order_by(*order, "id")


@dataclass(frozen=True, slots=True)
class WaitingRequests:
    """The requests of `waiting_for`, the oldest first, of which only a page is read,
    however many wait: a slice is the query of its rows.

    Pages of the API use it like a query. `bounds` are lookups of `opened_at`, `graph`
    and `run`.
    """

    user: Any
    bounds: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = ("opened_at", "id")

    def order_by(self, *order: str) -> "WaitingRequests":
        """Return the same requests in this order, of `opened_at` and `id`."""
        return replace(self, order=order)

    def filter(self, **bounds: Any) -> "WaitingRequests":
        """Return those within these bounds of `opened_at`, `graph` and `run`."""
        return replace(self, bounds={**self.bounds, **bounds})

    @property
    def is_merged(self) -> bool:
        """Return whether a page is made from the first rows of several lists, as each
        is here.
        """
        return True

    def __getitem__(self, part: slice) -> "QuerySet[ApprovalRequest]":
        reviewers = RequestReviewer.objects.filter(principal=SOURCE, waits=True)
        reviewers = reviewers.filter(**self.bounds)
        names = {"id": "request_id", "-id": "-request_id"}
        order = [names.get(column, column) for column in self.order]
        ids = first_of_each(
            principals_of(self.user),
            reviewers.order_by(*order),
            "request_id",
            part.stop,
        )
        waiting = ApprovalRequest.objects.filter(id__in=ids)
        return listed(waiting).order_by(*self.order)[part]


def count_waiting(user: Any) -> int:
    """Return how many requests wait for this user, at most one more than `MANY`. One
    query, besides those for the user's principals.
    """
    [count] = read_together(waiting=number_waiting(principals_shown(user)))["waiting"]
    return int(count)


def number_waiting(principals: Sequence[str]) -> RawSQL:
    """Return the query of the number that `count_waiting` returns."""
    return number_of_first(
        principals,
        _waiting_reviewers(),
        "request_id",
        most=MANY + 1,
    )


def bar_facts(user: Any) -> BarFacts:
    """Return what the bar says to this user. One query, besides those for the user's
    principals.
    """
    return bar_in(read_together(**bar_queries(principals_shown(user))))


def bar_queries(principals: Sequence[str]) -> dict[str, Any]:
    """Return the queries of `bar_facts`, which `bar_in` reads."""
    return {
        "waiting": number_waiting(principals),
        "heartbeat": workers.latest_heartbeat(),
    }


def bar_in(rows: Mapping[str, Sequence[Any]]) -> BarFacts:
    """Return the facts of the rows of `bar_queries`, by their names. No query."""
    [waiting] = rows["waiting"]
    return BarFacts(waiting, workers.silence_in(rows["heartbeat"]))


def _waiting_reviewers() -> "QuerySet[RequestReviewer]":
    """Return the rows by which a request waits for a source, in the order of an index
    that has no other rows.
    """
    reviewers = RequestReviewer.objects.filter(principal=SOURCE, waits=True)
    return reviewers.order_by("opened_at", "request_id")


def signed_by(
    user: Any,
    *,
    is_open: bool,
    first: int | None = None,
    behind: InboxPlace | None = None,
    principals: Sequence[str] | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the requests in which this user decided something, of the runs that he may
    still see, newest first: those that are still open, or the others. With `first` at
    most so many, with `behind` only those after this place. `principals` are his, where
    the caller has just read them.
    """
    signed = signers_of(user, is_open=is_open, principals=principals)
    if behind is not None:
        signed = signed.filter(behind.behind_in_signed())
    ids = signed.values("request")[:first]
    requests = ApprovalRequest.objects.filter(id__in=ids)
    return listed(requests).order_by("-opened_at", "-id")


def signers_of(
    user: Any,
    *,
    is_open: bool,
    principals: Sequence[str] | None = None,
    closed_to_decisions: bool = True,
) -> "QuerySet[RequestSigner]":
    """Return the rows of this user's signed requests, newest first, of the runs that he
    may see; on demand without those in which nothing can be decided. `principals` are
    his, where the caller has just read them.
    """
    signers = RequestSigner.objects.filter(by=user, is_open=is_open)
    run = Run.objects.filter(id=OuterRef("run"))
    if not closed_to_decisions:
        run = run.exclude(status__in=CLOSED_TO_DECISIONS)
    visible = visible_among(user, run, principals=principals)
    return signers.filter(Exists(visible)).order_by("-opened_at", "-request_id")


def listed(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """Return the same rows with their runs and claims, as lists need them: without
    large columns.
    """
    return requests.select_related("run", "claim").defer(
        "run__input",
        "run__error",
        "run__progress",
        "run__tape",
    )


def mark_of(user: Any) -> Mark:
    """Return the state of this user's inbox. One query, besides those for his
    principals.
    """
    return mark_in(read_together(**mark_queries(user, principals_of(user))))


def mark_queries(user: Any, principals: Sequence[str]) -> dict[str, Any]:
    """Return the queries of a `mark_of`, which `mark_in` reads: in one statement, so that
    no change comes between them. `principals` are the user's, as they were just read.
    """
    signed = signers_of(user, is_open=True, principals=principals)
    of_request = signed.values_list(
        "request",
        "request__run__decisions",
        "behind",
    )
    return {
        "changes": _newest_changes(principals),
        "waiting": number_waiting(principals),
        "signed": of_request[: MANY + 1],
    }


def mark_in(rows: Mapping[str, Sequence[Any]]) -> Mark:
    """Return the mark of the rows of `mark_queries`, by their names. No query."""
    [waiting] = rows["waiting"]
    changes = rows["changes"]
    signed_rows = rows["signed"]

    # A row of zeros separates the two lists.
    lines = [str(waiting)]
    for row in (*changes, (0, 0), *signed_rows):
        lines.append(" ".join(str(value) for value in row))
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Mark(
        waiting=min(waiting, MANY),
        is_capped=waiting > MANY,
        signed=len(signed_rows),
        mark=digest[:16],
    )


def _newest_changes(
    principals: Sequence[str],
) -> "QuerySet[RequestReviewer, tuple[UUID, int | None]]":
    """Return the requests naming one of these that changed last, with how often each
    has changed.
    """
    reviewers = RequestReviewer.objects.filter(principal=SOURCE)
    ids = first_of_each(
        principals,
        reviewers.order_by("-changed_at"),
        "id",
        NEWEST,
    )
    changed = RequestReviewer.objects.filter(id__in=ids).order_by("-changed_at", "id")
    return changed.values_list("request", "changes")[:NEWEST]


def mark_of_all() -> tuple[Any, ...]:
    """Return values that change when any request is opened, decided, settled or
    withdrawn: the newest changes of requests, and the newest decision.
    """
    decisions = Decision.objects.filter(request__isnull=False).order_by("-at")
    newest_decision = decisions.values_list("id", flat=True).first()
    changed = RequestReviewer.objects.filter(changed_at__isnull=False)
    newest_changes = changed.order_by("-changed_at").values_list("id", "changes")
    return newest_decision, *newest_changes[:NEWEST]
