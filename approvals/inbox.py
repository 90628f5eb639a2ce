"""Reads the requests that wait for a person, for pages and API. Changes nothing."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, QuerySet

from approvals.models import ApprovalRequest, Decision, RequestReviewer, RequestStatus
from approvals.permissions import principals_of, visible_runs
from checkpoints.core.status import CLOSED_TO_DECISIONS

MANY = 999
"""The highest count that the bar shows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a person's inbox.

    `waiting`: the number of requests in it. `is_capped`: there are others beyond that
    number. `mark`: changes with every row of the inbox.
    """

    waiting: int
    is_capped: bool
    mark: str


def waiting_for(user: Any) -> "QuerySet[ApprovalRequest]":
    """Return the open requests that name this user, the most urgent first: by deadline,
    then by age.

    One query, besides those for the user's principals. A request from which four eyes
    exclude him is included, because he may watch it; see `permissions.may_decide`. The
    run comes with each request, without its payloads.
    """
    principals = principals_of(user)
    reviewers = RequestReviewer.objects.filter(principal__in=principals)
    waiting = _open_requests().filter(id__in=reviewers.values("request"))
    by_deadline = F("deadline").asc(nulls_last=True)
    return listed(waiting).order_by(by_deadline, "opened_at", "id")


def _open_requests() -> "QuerySet[ApprovalRequest]":
    """Return the requests that can still be decided."""
    requests = ApprovalRequest.objects.filter(status=RequestStatus.OPEN)
    return requests.exclude(run__status__in=CLOSED_TO_DECISIONS)


def visible_requests(user: Any) -> "QuerySet[ApprovalRequest]":
    """Return every request of the runs that this user may see, newest first."""
    runs = visible_runs(user).values("id")
    requests = ApprovalRequest.objects.filter(run__in=runs)
    return listed(requests).order_by("-opened_at", "-id")


def signed_by(user: Any) -> "QuerySet[ApprovalRequest]":
    """Return the requests in which this user decided something, of the runs that he may
    still see, newest first.
    """
    decided = Decision.objects.filter(by=user).values("request")
    return visible_requests(user).filter(id__in=decided)


def listed(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """Return the same rows with their runs, as lists need them: without large
    columns.
    """
    return requests.select_related("run").defer(
        "run__input",
        "run__error",
        "run__progress",
        "run__tape",
    )


def mark_of(user: Any) -> Mark:
    """Return the state of this user's inbox: two queries, besides those for his
    principals.
    """
    waiting = waiting_for(user).values_list("id", "run__decisions")
    # One row beyond the highest count shows that there are others.
    waiting_rows = list(waiting[: MANY + 1])

    # From the open requests to his decisions, never from all that he ever decided.
    own = Decision.objects.filter(request=OuterRef("pk"), by=user)
    still_open = visible_requests(user).filter(Exists(own), status=RequestStatus.OPEN)
    signed_rows = still_open.values_list("id", "run__decisions")[:MANY]

    # A row of zeros separates the two lists.
    lines = []
    for request, decisions in (*waiting_rows, (0, 0), *signed_rows):
        lines.append(f"{request} {decisions}")
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Mark(
        waiting=min(len(waiting_rows), MANY),
        is_capped=len(waiting_rows) > MANY,
        mark=digest[:16],
    )


def mark_of_all() -> tuple[Any, ...]:
    """Return three values that change when any request is opened, decided, settled or
    withdrawn, from the open requests and the newest decision alone.
    """
    decisions = Decision.objects.filter(request__isnull=False).order_by("-at")
    newest_decision = decisions.values_list("id", flat=True).first()
    totals = (
        _open_requests()
        .order_by()
        .aggregate(
            count=Count("id"),
            last=Max("opened_at"),
        )
    )
    return totals["count"], totals["last"], newest_decision
