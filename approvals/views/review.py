"""The review page of a run, which shows everything that the run asks for, and the
endpoint that signs all choices made on it at once.
"""

from typing import cast
from uuid import uuid4

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe

from approvals import permissions, reviews
from approvals.views import card_pages
from approvals.views.card_pages import CardPages, DrawnCards, LinePages
from approvals.views.composed_review import review_of
from approvals.views.page import (
    LISTS,
    opens_payloads,
    posted_from_review,
    single_fields,
    visible_run,
)
from approvals.views.people.own_password import FIELD
from approvals.views.posted_confirmation import posted_confirmation
from approvals.views.posted_review import as_posted, choices_posted, obstacle_to_signing
from approvals.views.review_form import Choice
from approvals.views.seen_writes import OPENED, note_signed_page
from approvals.views.shown_review import Review, rendered
from approvals.views.unsigned_review import mark_refused_choice, show_again
from checkpoints.models import Run
from orchestrator.engine.errors import (
    REFUSALS,
    AlreadyDecided,
    ConfirmationRequired,
    CountersignError,
    InvalidValue,
    KeyConflict,
    NotConsidered,
    PayloadTooLarge,
    StaleProposal,
)

MOST_OPENED = 20
"""The most writes of a review of many that one address can open."""


@login_required
@require_safe
@opens_payloads
@permissions.remembering_principals()
def review_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Show what the run asks for now."""
    edited = set(request.GET.getlist("edit"))
    pages = CardPages.of_query(request.GET.getlist(card_pages.QUERY))
    drawing = DrawnCards(
        fields=edited.__contains__, requested=edited.__contains__, pages=pages
    )
    # All of these open a write of a review of many, up to a limit, so that no address
    # can make the page heavy.
    opened = [*edited, *pages.writes, *request.GET.getlist("open")]
    shown = review_of(
        visible_run(request.user, ref),
        request.user,
        drawing=drawing,
        seen=request.GET.getlist("seen"),
        opened=opened[:MOST_OPENED],
    )
    shown.unfolded = "unfolded" in request.GET
    shown.turn(LinePages.of_query(request.GET.getlist("list")))
    _note_drawn_samples(shown)
    return rendered(request, shown)


def _note_drawn_samples(shown: Review) -> None:
    """Count samples that this page draws whole as seen: their slips carry the proof."""
    drawn = {slip.write for slip in shown.slips}
    # The samples of a group can be opened one by one, on any page.
    for group in shown.groups:
        group.seen |= group.sample_writes & drawn


@sensitive_post_parameters(FIELD)
@posted_from_review
@single_fields(repeated=LISTS)
@opens_payloads
def sign_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Sign the posted choices: redirect to the receipt, or show the same page again
    with what went wrong and every choice kept.
    """
    run = visible_run(request.user, ref)
    # The key makes signing idempotent: the same form posted twice counts once.
    shown = _review_posted(request, run, key=request.POST.get("key", "")[:200])
    chosen = choices_posted(request, shown)
    obstacle = obstacle_to_signing(shown, chosen, request.POST)
    if obstacle is not None:
        return show_again(request, shown, chosen, obstacle)
    # What a gate asks for must be noted before; kept even if nothing is signed now.
    note_signed_page(request, shown, asked_for=True)
    try:
        receipt = reviews.sign(
            run.id,
            [choice.decision() for choice in chosen.values()],
            by=cast(AbstractBaseUser, request.user),
            idempotency_key=shown.key or None,
            confirmation=posted_confirmation(request, shown),
        )
    # Nothing was signed: one act is one transaction.
    except REFUSALS as error:
        return _refused(request, run, chosen, error)
    finally:
        # Noted after, so that figures do not take it for a quick first look.
        note_signed_page(request, shown, asked_for=False)
    return redirect("receipt", receipt.id)


def _review_posted(request: HttpRequest, run: Run, *, key: str) -> Review:
    """Return the review as it is now, with the parts open that the posted page had
    open.
    """
    shown = review_of(
        run,
        request.user,
        key=key,
        drawing=as_posted(request.POST),
        seen=request.POST.getlist("seen"),
        opened=request.POST.getlist("write"),
    )
    shown.unfolded = bool(request.POST.getlist(OPENED))
    return shown


def _refused(
    request: HttpRequest,
    run: Run,
    chosen: dict[str, Choice],
    error: CountersignError,
) -> HttpResponse:
    if isinstance(error, InvalidValue | PayloadTooLarge):
        mark_refused_choice(chosen, error)
    # A spent key must not be sent again.
    is_key_spent = isinstance(error, KeyConflict | StaleProposal | AlreadyDecided)
    key = uuid4().hex if is_key_spent else request.POST.get("key", "")
    # Read again: the cause may have happened after the page was built.
    shown = _review_posted(request, visible_run(request.user, run.id), key=key)
    answer = show_again(request, shown, chosen, error)
    # A script continues with the open page instead of posting all of it again.
    if isinstance(error, ConfirmationRequired):
        answer.headers["X-Unconfirmed"] = "1"
    if isinstance(error, NotConsidered):
        answer.headers["X-Unconsidered"] = str(error.facts["seconds"])
    return answer
