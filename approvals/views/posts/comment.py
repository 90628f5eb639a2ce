"""The address to which the form for a comment posts: a comment that could not be
written is put back into the form, so that nothing typed is lost.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from approvals import reviews
from approvals.models import ApprovalRequest
from approvals.views.composed_review import review_of
from approvals.views.page import (
    opens_payloads,
    posted_from_review,
    single_fields,
    visible_run,
)
from approvals.views.posted_review import as_posted
from approvals.views.shown_review import rendered
from approvals.views.unsigned_review import ANSWERS
from checkpoints.models import Run
from orchestrator.engine.errors import (
    REFUSALS,
    CountersignError,
    KeyConflict,
    UnknownThing,
)


@posted_from_review
@single_fields()
@opens_payloads
def comment_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Write a comment on a request of a run or on one of its writes, and lead back to
    the comments of the review; or show the review again with the text and the reason why
    it was not written.
    """
    run = visible_run(request.user, ref)
    about, _, write = request.POST.get("about", "").partition(" ")
    try:
        _require_request(run, about)
        reviews.comment(
            about,
            _posted_text(request),
            by=request.user,
            write=write or None,
            # Posted twice, it is written once.
            id=_uuid_in(request.POST.get("key", "")),
        )
    except REFUSALS as error:
        return _shown_again(request, ref, about, error)
    return redirect(f"{reverse('review', args=[run.id])}#comments")


def _require_request(run: Run, about: str) -> None:
    requests = ApprovalRequest.objects.filter(id__in=[_uuid_in(about)], run=run)
    if not requests.exists():
        raise UnknownThing("there is no such request in this run")


def _posted_text(request: HttpRequest) -> str:
    # Browsers post the ends of lines as networks have them.
    return request.POST.get("text", "").replace("\r\n", "\n")


def _shown_again(
    request: HttpRequest, ref: str, about: str, error: CountersignError
) -> HttpResponse:
    """Show the review again, with the text in a form under a fresh key: the old one may
    have written another comment.
    """
    shown = review_of(
        # Read again: the cause may have happened after the page was built.
        visible_run(request.user, ref),
        request.user,
        drawing=as_posted(request.POST),
        seen=[about],
    )
    shown.message = _sentence_of(error)
    shown.message_style = "bad"
    shown.problems = [
        {"anchor": "comment-text", "title": "Your comment", "text": "is kept there"}
    ]
    shown.comment_text = _posted_text(request)
    shown.comment_about = request.POST.get("about", "")
    return rendered(request, shown, status=ANSWERS.get(type(error), 409))


def _sentence_of(error: CountersignError) -> str:
    if isinstance(error, KeyConflict):
        return (
            "Nothing was written yet: another comment was written from this page before."
            " Send this one again."
        )
    return f"Nothing was written: {error.message}."


def _uuid_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
