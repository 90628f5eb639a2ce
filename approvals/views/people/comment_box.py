"""Comments on pages: what people have said about the requests of a run, the form for
another one, and the address to which it posts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.db.models import Count, QuerySet, Window
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from approvals import reviews
from approvals.models import ApprovalRequest, RequestComment
from approvals.people.comments import LONGEST, SHOWN
from approvals.views.inbox import name_of, name_of_node
from approvals.views.page import posted_from_review, single_fields, visible_run
from approvals.views.write_cards import Question
from checkpoints.models import Run
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import REFUSALS, UnknownThing


@dataclass(frozen=True, slots=True)
class ShownComment:
    """A comment as a page shows it. `about` names the write or the earlier request that
    it is about; empty for the request on the page.
    """

    id: UUID
    name: str
    at: datetime
    text: str
    about: str
    fault: SealFault | None


@dataclass(frozen=True, slots=True)
class CommentTarget:
    """A request or write that a new comment can be about, with the value that its form posts."""

    value: str
    words: str


@dataclass(frozen=True, slots=True)
class CommentBox:
    """The comments on the requests of a run, the oldest first. `count` is that of all;
    `older` and `newer` are the numbers of the pages beside this one, 0 for none. Without
    targets nothing can be written here.
    """

    comments: Sequence[ShownComment]
    count: int = 0
    older: int = 0
    newer: int = 0
    targets: Sequence[CommentTarget] = ()
    key: str = field(default_factory=lambda: str(uuid4()))
    longest: int = LONGEST


def comment_queries(run: Run, *, page: int = 1) -> dict[str, "QuerySet[Any]"]:
    """Return the queries of a page of comments on all requests of a run, also on earlier
    ones, with their people and requests: `comment_box` reads the rows. `page` counts
    from the newest, 1.
    """
    comments = RequestComment.objects.filter(run=run.id)
    # Counted with them, so that the page needs no second query.
    counted = comments.annotate(count=Window(Count("id"))).order_by("-at", "-id")
    first = SHOWN * (page - 1)
    requests = ApprovalRequest.objects.filter(id__in=comments.values("request"))
    people = get_user_model()._base_manager
    return {
        "comments": counted[first : first + SHOWN],
        "commented": requests.only("id", "node"),
        "commenters": people.filter(pk__in=comments.values("by")),
    }


def comment_box(
    run: Run,
    questions: Sequence[Question],
    rows: Mapping[str, Sequence[Any]],
    *,
    page: int = 1,
) -> CommentBox:
    """Return the comments of the rows of `comment_queries`, with what a new one can be
    about. No query.
    """
    newest: Sequence[Any] = rows["comments"]
    _join(newest, rows)
    count = newest[0].count if newest else 0
    titles = _titles_of_writes(questions)
    on_page = {question.id for question in questions}
    # An imported run is commented on where it came from.
    targets: Sequence[CommentTarget] = () if run.imported else _targets(questions)
    return CommentBox(
        comments=_shown(newest[::-1], run, titles, on_page),
        count=count,
        older=page + 1 if count > SHOWN * page else 0,
        newer=page - 1,
        targets=targets,
    )


def _join(
    comments: Sequence[RequestComment], rows: Mapping[str, Sequence[Any]]
) -> None:
    """Set the person and the request of each comment."""
    people = {person.pk: person for person in rows["commenters"]}
    requests = {request.id: request for request in rows["commented"]}
    for comment in comments:
        comment.request = requests[comment.request_id]
        # Whose account is gone is known by name.
        if comment.by_id in people:
            comment.by = people[comment.by_id]


def comments_of_requests(
    run: Run, requests: Sequence[ApprovalRequest]
) -> Sequence[ShownComment]:
    """Return the newest comments on these requests of a run, the oldest first. One
    query.
    """
    on_page = {request.id for request in requests}
    rows = RequestComment.objects.filter(request__in=on_page)
    newest = list(rows.select_related("by").order_by("-at", "-id")[:SHOWN])
    return _shown(newest[::-1], run, {}, on_page)


def _titles_of_writes(questions: Sequence[Question]) -> dict[str, str]:
    titles: dict[str, str] = {}
    for question in questions:
        for slip in question.slips:
            titles[str(slip.write)] = slip.title
    return titles


def _shown(
    rows: Sequence[RequestComment],
    run: Run,
    titles: Mapping[str, str],
    on_page: Collection[UUID],
) -> list[ShownComment]:
    protection = protection_of(run)
    comments: list[ShownComment] = []
    for row in rows:
        # Otherwise it would be read again, to open the text.
        row.run = run
        about = _about(row, titles, on_page)
        comments.append(_comment(row, about, protection))
    return comments


def _about(
    row: RequestComment, titles: Mapping[str, str], on_page: Collection[UUID]
) -> str:
    if row.request_id not in on_page:
        return f"on an earlier question of {name_of_node(row.request.node)}"
    if row.write is None:
        return ""
    return f"on {titles.get(str(row.write), 'one write')}"


def _comment(row: RequestComment, about: str, protection: Protection) -> ShownComment:
    return ShownComment(
        id=row.id,
        name=name_of(row.by) if row.by is not None else row.by_name,
        at=row.at,
        text=str(read_or_reason(row, "text") or ""),
        about=about,
        fault=fault_of(row, protection),
    )


def _targets(questions: Sequence[Question]) -> list[CommentTarget]:
    targets: list[CommentTarget] = []
    for question in questions:
        targets.append(CommentTarget(str(question.id), question.title))
        if len(question.slips) < 2:
            continue
        for slip in question.slips:
            value = f"{question.id} {slip.write}"
            targets.append(CommentTarget(value, f"only: {slip.title}"))
    return targets


@posted_from_review
@single_fields()
def comment_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Write a comment on a request of a run or on one of its writes, and lead back to
    the comments of the review.
    """
    run = visible_run(request.user, ref)
    about, _, write = request.POST.get("about", "").partition(" ")
    # Browsers post the ends of lines as networks have them.
    text = request.POST.get("text", "").replace("\r\n", "\n")
    try:
        if not ApprovalRequest.objects.filter(
            id__in=[_uuid_in(about)], run=run
        ).exists():
            raise UnknownThing("there is no such request in this run")
        reviews.comment(
            about,
            text,
            by=request.user,
            write=write or None,
            # Posted twice, it is written once.
            id=_uuid_in(request.POST.get("key", "")),
        )
    except REFUSALS as error:
        messages.error(request, f"Nothing was written: {error.message}.")
    return redirect(f"{reverse('review', args=[run.id])}#comments")


def _uuid_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
