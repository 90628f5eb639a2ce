"""Keeping what somebody chose in a review and has not signed: by script as one chooses, or by a button."""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string

from approvals.drafts import DraftChoice, drafts_of, save_drafts
from approvals.gates.departed_line import departed_line
from approvals.gates.lost_version import refusal_to_sign
from approvals.gates.request_state import RequestState, load_states, policy_of
from approvals.models import Decision
from approvals.views import group_form, review_form, write_cards
from approvals.views.drafted_outcome import drafted_outcome
from approvals.views.page import LISTS, opens_payloads, posted_from_review, single_fields, visible_run
from approvals.views.review import (
    Tally,
    as_posted,
    choices_posted,
    reasons_not_to_sign,
    requests_of,
    review_of,
    show_again,
)
from checkpoints import versions
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.verdicts import excludes

KEPT = "Your choices are kept; nothing is signed. You find them here whenever you come back."
CHANGED = "Some writes changed while you decided; your choices for those are not kept."
NEWER = "Not kept: another page of yours has newer choices. Keep these again to put them in their place."


@posted_from_review
@single_fields(repeated=LISTS)
@opens_payloads
def draft_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Keep the posted choices. A script is told what happens when they are signed, or by 409 that another page has
    newer ones; anybody else sees the review.
    """
    user, run = cast(AbstractBaseUser, request.user), visible_run(request.user, ref)
    states = load_states(requests_of(run), protection_of(run))
    number = request.POST.get("number", "")
    at = int(number) if number.isdecimal() and len(number) < 16 else 1
    rows = _open_to(user, run, states)
    found, moved = review_form.drafts_in(request.POST, rows, _typed_in(request.POST, run))
    if request.POST.getlist("group"):
        of_groups, moved_groups = _drafts_of_groups(request, run)
        own = {draft.write for draft in found}
        found += [draft for draft in of_groups if draft.write not in own]
        moved += moved_groups
    kept = save_drafts(user, run, found, number=at)
    if request.headers.get("X-Fragment"):
        return _fragment(run, user, states, rows, moved) if kept else HttpResponse(status=409, headers={"X-Newer": "1"})
    if not kept:
        key, opened = request.POST.get("key", "")[:200], request.POST.getlist("write")
        shown = review_of(run, user, key=key, drawing=as_posted(request.POST), opened=opened)
        chosen = choices_posted(request, shown)
        return show_again(request, shown, chosen, CountersignError("newer_choices", NEWER))
    messages.success(request, f"{KEPT} {CHANGED}" if moved else KEPT)
    return redirect("review", run.id)


def _drafts_of_groups(request: HttpRequest, run: Run) -> tuple[list[DraftChoice], list[str]]:
    """What the posted verdicts of groups draft, write by write; and the groups of which something has changed."""
    opened = request.POST.getlist("write")
    shown = review_of(run, request.user, drawing=as_posted(request.POST), opened=opened)
    group_form.note_opened(shown.groups, request.POST, request.user.pk)
    return group_form.group_drafts(shown.groups, request.POST)


def keep_after_sign_in(user: Any, ref: str, posted: QueryDict) -> None:
    """Keep what somebody chose whose session had ended, now that the same person is back. What somebody else chose, or
    what cannot be kept any more, is not: signing in goes before.
    """
    if posted.get("by") == str(user.pk):
        with suppress(Http404, CountersignError):
            _keep_all(user, visible_run(user, ref), posted)


def _keep_all(user: Any, run: Run, posted: QueryDict) -> None:
    rows = _open_to(user, run, load_states(requests_of(run), protection_of(run)))
    found, _ = review_form.drafts_in(posted, rows, _typed_in(posted, run))
    newest = max((one.number for one in drafts_of(user, run).values()), default=0)
    save_drafts(user, run, [one for one in found if not one.empty], number=newest + 1)


def _typed_in(posted: QueryDict, run: Run) -> Callable[[PendingWrite], bool]:
    """Tells of a write whether somebody changed its posted edit form; a form that one did not touch is posted too."""
    compiled, drawing, plain = versions.graph_for(run), as_posted(posted), posted.dict()

    def is_typed(row: PendingWrite) -> bool:
        if compiled is None or row.channel not in compiled.channels:
            return False
        value = read_value(row, "value")
        control = write_cards.control_of(compiled, row, value, drawing)
        return control is not None and not review_form.is_as_drawn(control, plain, value)

    return is_typed


def _open_to(user: Any, run: Run, states: list[RequestState]) -> dict[str, PendingWrite]:
    """The writes that this person may decide now, by id."""
    refused = refusal_to_sign(run) is not None
    why_not = reasons_not_to_sign(user, [one.request for one in states], run, refused=refused)
    return {
        str(row.write): row
        for one in states
        for row in one.writes
        if not why_not[one.request.id]
        and not one.standings[row.write].settled
        and not excludes(policy_of(one.request), row.author_id, user.pk)
    }


def _fragment(run: Run, user: Any, states: list[RequestState], rows: Collection[str], moved: list[str]) -> HttpResponse:
    made = Decision.objects.filter(request__in=[one.request for one in states]).order_by("event_seq")
    kept = {write: one for write, one in drafts_of(user, run).items() if write in rows}
    compiled = versions.graph_for(run)
    ahead = departed_line(run, compiled, states).ahead
    following = drafted_outcome(compiled, states, list(made), kept, user.pk, ahead=ahead)
    chosen = [kept[write].verdict if write in kept else "" for write in rows]
    tally = Tally(*(chosen.count(verdict) for verdict in ("approve", "edit", "reject", "")))
    context = {"next": following, "moved": " ".join(moved), "may_sign": True, "tally": tally}
    parts = [render_to_string(f"approvals/{name}.html", context) for name in ("_next", "_meter")]
    return HttpResponse("".join(parts), headers={"Cache-Control": "no-store"})
