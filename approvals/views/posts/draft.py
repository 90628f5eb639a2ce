"""Saving the choices that a person made in a review and has not signed: by script with
each choice, or by a button.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string

from approvals.drafts import DraftChoice, drafts_of, save_drafts
from approvals.gates.departed_line import departed_line
from approvals.gates.request_state import RequestState
from approvals.models import Decision
from approvals.views import group_form, review_form, write_cards
from approvals.views.composed_review import newest_number, review_of, states_of
from approvals.views.decidable_writes import decidable_writes
from approvals.views.drafted_outcome import drafted_outcome
from approvals.views.page import (
    LISTS,
    opens_payloads,
    posted_from_review,
    single_fields,
    visible_run,
)
from approvals.views.posted_review import as_posted, choices_posted, posted_number
from approvals.views.shown_review import Tally
from approvals.views.unsigned_review import show_again
from checkpoints import versions
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import CountersignError

KEPT = (
    "Your choices are kept; nothing is signed. You find them here whenever you come"
    " back."
)
CHANGED = "Some writes changed while you decided; your choices for those are not kept."
NEWER = (
    "Not kept: another page of yours has newer choices. Keep these again to put them in"
    " their place."
)


@posted_from_review
@single_fields(repeated=LISTS)
@opens_payloads
def draft_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Save the posted choices. A script gets what would happen if they were signed, or
    409 if another page has newer ones; a browser without scripts gets the review.
    """
    user = cast(AbstractBaseUser, request.user)
    run = visible_run(request.user, ref)
    states = states_of(run)
    # Drafts of writes that this person may not decide are not saved.
    rows = decidable_writes(user, run, states)
    drafts, moved = _posted_drafts(request, run, rows)
    is_saved = save_drafts(user, run, drafts, number=posted_number(request.POST))

    if request.headers.get("X-Fragment"):
        if not is_saved:
            return HttpResponse(status=409, headers={"X-Newer": "1"})
        return _fragment(run, user, states, rows, moved)
    if not is_saved:
        return _shown_as_posted(request, run)
    sentence = f"{KEPT} {CHANGED}" if moved else KEPT
    messages.success(request, sentence)
    return redirect("review", run.id)


def _posted_drafts(
    request: HttpRequest,
    run: Run,
    rows: dict[str, PendingWrite],
) -> tuple[list[DraftChoice], list[str]]:
    """Return the posted choices as drafts, and what has changed since the page was
    drawn.
    """
    is_typed = _typed_in(request.POST, run)
    drafts, moved = review_form.drafts_in(request.POST, rows, is_typed)
    if not request.POST.getlist("group"):
        return drafts, moved
    of_groups, moved_groups = _drafts_of_groups(request, run)
    # A choice for a write itself outranks the verdict of its group.
    own = {draft.write for draft in drafts}
    drafts += [draft for draft in of_groups if draft.write not in own]
    return drafts, moved + moved_groups


def _drafts_of_groups(
    request: HttpRequest,
    run: Run,
) -> tuple[list[DraftChoice], list[str]]:
    """Return a draft for each write of the groups with a posted verdict, and the groups
    in which something has changed.
    """
    opened = request.POST.getlist("write")
    shown = review_of(run, request.user, drawing=as_posted(request.POST), opened=opened)
    group_form.note_opened(shown.groups, request.POST, request.user.pk)
    return group_form.group_drafts(shown.groups, request.POST)


def _shown_as_posted(request: HttpRequest, run: Run) -> HttpResponse:
    """Show the posted choices again: another page has saved newer ones."""
    shown = review_of(
        run,
        request.user,
        key=request.POST.get("key", "")[:200],
        drawing=as_posted(request.POST),
        opened=request.POST.getlist("write"),
    )
    chosen = choices_posted(request, shown)
    return show_again(request, shown, chosen, CountersignError("newer_choices", NEWER))


def keep_after_sign_in(user: Any, ref: str, posted: QueryDict) -> None:
    """Save the choices of a person whose session had ended, now that the same person is
    back. Choices of another person, and those that can no longer be saved, are dropped:
    signing in must not fail because of them.
    """
    # The form has the account that it was drawn for.
    if posted.get("by") == str(user.pk):
        with suppress(Http404, CountersignError):
            _keep_all(user, visible_run(user, ref), posted)


def _keep_all(user: Any, run: Run, posted: QueryDict) -> None:
    rows = decidable_writes(user, run, states_of(run))
    drafts, _ = review_form.drafts_in(posted, rows, _typed_in(posted, run))
    newest = newest_number(drafts_of(user, run))
    # An empty draft would remove one that another page saved in the meantime.
    filled = [draft for draft in drafts if not draft.empty]
    save_drafts(user, run, filled, number=newest + 1)


def _typed_in(posted: QueryDict, run: Run) -> Callable[[PendingWrite], bool]:
    """Return a function that returns whether the person changed the posted edit form of a
    write; an untouched form is posted too.
    """
    compiled = versions.graph_for(run)
    drawing = as_posted(posted)
    plain = posted.dict()

    def is_typed(row: PendingWrite) -> bool:
        if compiled is None or not compiled.has_channel(row.node, row.channel):
            return False
        value = read_value(row, "value")
        # The form is built as it was drawn, and then filled with what was posted.
        control = write_cards.control_of(compiled, row, value, drawing)
        if control is None:
            return False
        return not review_form.is_as_drawn(control, plain, value)

    return is_typed


def _fragment(
    run: Run,
    user: Any,
    states: Sequence[RequestState],
    rows: Collection[str],
    moved: list[str],
) -> HttpResponse:
    """Answer a script with the parts of the page that depend on drafts."""
    requests = [state.request for state in states]
    decisions = Decision.objects.filter(request__in=requests).order_by("event_seq")
    drafts = drafts_of(user, run)
    # Drafts of writes that this person may not decide now would not be signed.
    for write in drafts.keys() - set(rows):
        del drafts[write]
    compiled = versions.graph_for(run)
    ahead = departed_line(run, compiled, states).ahead
    following = drafted_outcome(
        compiled, states, list(decisions), drafts, user.pk, ahead=ahead
    )
    verdicts = [drafts[write].verdict if write in drafts else "" for write in rows]
    context = {
        "next": following,
        "moved": " ".join(moved),
        "may_sign": True,
        "tally": Tally.of_verdicts(verdicts),
    }
    next_part = render_to_string("approvals/_next.html", context)
    meter_part = render_to_string("approvals/_meter.html", context)
    return HttpResponse(next_part + meter_part, headers={"Cache-Control": "no-store"})
