"""The folders of the inbox beside what waits and what was signed: what came back to a
person, what they have drafted, and what its deadline ended. Changes nothing.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from approvals import inbox
from approvals.models import (
    ApprovalRequest,
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
)
from approvals.permissions import principals_shown, visible_among
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db.first_rows import SOURCE, first_of_each
from checkpoints.db.together import Count
from checkpoints.models import Run


def came_back_to(
    user: Any,
    *,
    first: int | None = None,
    behind: inbox.InboxPlace | None = None,
    principals: Sequence[str] | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the open requests in which something that this user decided has changed
    since, newest first. Their runs are visible to the user and can still be decided.
    `first` limits the number, and `behind` leaves out those before this place.
    `principals` are the user's, if the caller has just read them.
    """
    signers = _back(user, principals=principals)
    if behind is not None:
        signers = signers.filter(behind.behind_in_signed())
    requests = ApprovalRequest.objects.filter(id__in=signers.values("request")[:first])
    return inbox.listed(requests).order_by("-opened_at", "-id")


def _back(
    user: Any, *, principals: Sequence[str] | None = None
) -> "QuerySet[RequestSigner]":
    """Return the rows of this user's signed requests that came back, newest first.
    `principals` are his, where the caller has just read them.
    """
    signers = inbox.signers_of(
        user, is_open=True, principals=principals, closed_to_decisions=False
    )
    return signers.filter(behind__isnull=False)


def drafted_by(
    user: Any,
    *,
    first: int | None = None,
    behind: inbox.InboxPlace | None = None,
    principals: Sequence[str] | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the open requests for which this user has drafted a choice that is not
    signed, of the runs that he may still see, newest first. With `first` at most so many,
    with `behind` only those after this place. `principals` are his, where the caller
    has just read them.
    """
    drafters = _drafted(user, principals=principals)
    if behind is not None:
        drafters = drafters.filter(behind.behind_in_signed())
    requests = ApprovalRequest.objects.filter(id__in=drafters.values("request")[:first])
    return inbox.listed(requests).order_by("-opened_at", "-id")


def _drafted(
    user: Any, *, principals: Sequence[str] | None = None
) -> "QuerySet[RequestDrafter]":
    """Return the rows of the open requests in which this user has drafts, newest first,
    of the runs that he may see. `principals` are his, where the caller has just read
    them.
    """
    drafters = RequestDrafter.objects.filter(by=user, is_open=True, drafts__gt=0)
    run = Run.objects.filter(id=OuterRef("run")).exclude(status__in=CLOSED_TO_DECISIONS)
    visible = visible_among(user, run, principals=principals)
    return drafters.filter(Exists(visible)).order_by("-opened_at", "-request_id")


def expired_for(
    user: Any,
    *,
    first: int | None = None,
    behind: inbox.InboxPlace | None = None,
) -> "QuerySet[ApprovalRequest]":
    """Return the requests naming this user that their deadline closed, or in which it
    decided what was left open, newest first. The first ones are sure to be complete, and
    no others are read than so many of each of the user's principals.
    """
    reviewers = RequestReviewer.objects.filter(principal=SOURCE, expired=True)
    if behind is not None:
        reviewers = reviewers.filter(behind.behind_in_signed())
    ids = first_of_each(
        principals_shown(user),
        reviewers.order_by("-opened_at", "-request_id"),
        "request_id",
        first,
    )
    expired = ApprovalRequest.objects.filter(id__in=ids)
    return inbox.listed(expired).order_by("-opened_at", "-id")


def count_queries(user: Any, principals: Sequence[str]) -> dict[str, Count]:
    """Return by the name of the folder the queries for how many requests came back to
    this user and how many have drafts of his, each at most one more than `inbox.MANY`.
    `principals` are the user's, as the caller has just read them.
    """
    came_back = _back(user, principals=principals).values("request")
    drafted = _drafted(user, principals=principals).values("request")
    return {
        "back": Count(came_back[: inbox.MANY + 1]),
        "drafts": Count(drafted[: inbox.MANY + 1]),
    }
