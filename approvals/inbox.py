"""Reads: what waits for a person. Pages and API call it; it never changes anything."""

from typing import Any

from django.db.models import F, QuerySet

from approvals.models import ApprovalRequest, Decision, RequestReviewer, RequestStatus
from approvals.permissions import principals_of, visible_runs
from checkpoints.core.status import CLOSED_TO_DECISIONS


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
