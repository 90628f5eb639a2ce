"""Reads: what waits for a person. Pages and API call it; it never changes anything."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, QuerySet

from approvals.models import ApprovalRequest, Decision, RequestReviewer, RequestStatus
from approvals.permissions import principals_of, visible_runs
from checkpoints.core.status import CLOSED_TO_DECISIONS

MANY = 999
"""Counts in the bar stop here."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How much waits for a person, `more` where that is not all; `mark` changes with every row of his inbox."""

    waiting: int
    more: bool
    mark: str


def waiting_for(user: Any) -> "QuerySet[ApprovalRequest]":
    """The open requests that name this user, the most urgent first: by deadline, then by age.

    One query, besides those for the names he holds. A request that four eyes close to him is listed too, for he may
    watch it; `permissions.may_decide` tells. The run comes with each request, without its payloads.
    """
    named = RequestReviewer.objects.filter(principal__in=principals_of(user)).values("request")
    waiting = ApprovalRequest.objects.filter(id__in=named, status=RequestStatus.OPEN)
    waiting = waiting.exclude(run__status__in=CLOSED_TO_DECISIONS)
    return listed(waiting).order_by(F("deadline").asc(nulls_last=True), "opened_at", "id")


def visible_requests(user: Any) -> "QuerySet[ApprovalRequest]":
    """Every request of the runs that this user may see, newest first."""
    return listed(ApprovalRequest.objects.filter(run__in=visible_runs(user).values("id"))).order_by("-opened_at", "-id")


def signed_by(user: Any) -> "QuerySet[ApprovalRequest]":
    """The requests in which this user decided something, of the runs that he may see still, newest first."""
    decided = Decision.objects.filter(by=user).values("request")
    return visible_requests(user).filter(id__in=decided)


def listed(requests: "QuerySet[ApprovalRequest]") -> "QuerySet[ApprovalRequest]":
    """The same rows with their run, as lists want them: of the run no input, no error."""
    return requests.select_related("run").defer("run__input", "run__error", "run__progress", "run__tape")


def mark_of(user: Any) -> Mark:
    """How the inbox of this user stands: two queries, besides those for the names he holds."""
    rows = list(waiting_for(user).values_list("id", "run__decisions")[: MANY + 1])
    # From the open requests to his decisions, never from all that he ever decided.
    own = Decision.objects.filter(request=OuterRef("pk"), by=user)
    open_still = visible_requests(user).filter(Exists(own), status=RequestStatus.OPEN)
    signed = open_still.values_list("id", "run__decisions")[:MANY]
    text = "\n".join(f"{request} {decisions}" for request, decisions in (*rows, (0, 0), *signed))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Mark(min(len(rows), MANY), len(rows) > MANY, digest)


def mark_of_all() -> tuple[Any, ...]:
    """What changes when anything is asked, decided, settled or withdrawn: three numbers, from the open requests and the
    newest decision alone.
    """
    waiting = ApprovalRequest.objects.filter(status=RequestStatus.OPEN).exclude(run__status__in=CLOSED_TO_DECISIONS)
    newest = Decision.objects.filter(request__isnull=False).order_by("-at").values_list("id", flat=True).first()
    return (*waiting.order_by().aggregate(count=Count("id"), last=Max("opened_at")).values(), newest)
