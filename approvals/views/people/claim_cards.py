"""Claims on pages: who has taken a review, and what this person can do about it; and
the address to which its buttons post.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import permissions, reviews
from approvals.models import ApprovalRequest, RequestClaim, RequestStatus
from approvals.people.accounts import active_account
from approvals.people.claims import (
    holds_claim,
    is_exclusive,
    sentence_of,
    shown_claim,
    still_decides,
)
from approvals.views.inbox import names_of
from approvals.views.page import posted_from_review, single_fields, visible_run
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS, InvalidValue, UnknownThing

RELEASED = "The review is given back."


@dataclass(frozen=True, slots=True)
class ClaimCard:
    """The claim on one request as one person sees it. `sentence` is empty where nobody
    has taken it. `keeps_out`: nobody but the holder can sign. `is_reason`: it is why this
    person cannot, so no other sentence has to say so.
    """

    request: UUID
    node: str
    sentence: str
    keeps_out: bool
    is_reason: bool
    may_take: bool
    may_release: bool
    may_assign: bool
    may_reopen: bool
    may_allow: bool


def claim_cards(
    user: Any,
    requests: Iterable[ApprovalRequest],
    why_not: Mapping[UUID, str],
) -> list[ClaimCard]:
    """Return the claims on the open requests of a review about which this person can
    read or do something. One query if there are any, else none; some for each exclusive
    claim of another person.
    """
    open_requests: list[ApprovalRequest] = []
    for request in requests:
        if request.status == RequestStatus.OPEN and not permissions.closed(request):
            open_requests.append(request)
    names = _names_of_holders(open_requests)
    # Known by now: the page has read the person's permissions.
    is_steward = bool(open_requests) and permissions.may(user, "reassign")
    cards: list[ClaimCard] = []
    for request in open_requests:
        card = _card(request, user, why_not[request.id], names, is_steward=is_steward)
        can_act = card.may_take or card.may_assign or card.may_allow
        if card.sentence or can_act:
            cards.append(card)
    return cards


def _names_of_holders(requests: Sequence[ApprovalRequest]) -> dict[str, str]:
    accounts: list[str] = []
    for request in requests:
        taken = shown_claim(request)
        if taken is not None:
            accounts += [taken.by_name, taken.assigned_name]
    return names_of(accounts)


def _card(
    request: ApprovalRequest,
    user: Any,
    why_not: str,
    names: Mapping[str, str],
    *,
    is_steward: bool,
) -> ClaimCard:
    taken = shown_claim(request)
    is_own = taken is not None and taken.by_id == user.pk
    keeps_out = _keeps_others_out(taken, request, is_own=is_own)
    is_free = taken is None or (is_exclusive(request) and not keeps_out)
    return ClaimCard(
        request=request.id,
        node=request.node,
        sentence=_sentence(taken, names, is_own=is_own),
        keeps_out=keeps_out,
        is_reason=taken is not None and why_not == _kept_out_by(taken),
        may_take=is_free and not why_not,
        may_release=is_own or (taken is not None and is_steward),
        may_assign=is_own or is_steward,
        may_reopen=is_steward,
        may_allow=_may_allow(user, request),
    )


def _may_allow(user: Any, request: ApprovalRequest) -> bool:
    """Return whether this person may let the gate sign by itself what is like this. No
    query where the gate permits that to nobody.
    """
    if not request.policy.get("standing"):
        return False
    # The page has read them, once for all its requests.
    principals = permissions.held_shown(user).own
    return permissions.is_reviewer(user, request, principals=principals)


def _keeps_others_out(
    taken: RequestClaim | None, request: ApprovalRequest, *, is_own: bool
) -> bool:
    """Return whether a claim keeps others from signing, as far as its reader knows:
    they know of their claim.
    """
    if taken is None or not is_exclusive(request):
        return False
    return is_own or still_decides(taken, request)


def _sentence(
    taken: RequestClaim | None, names: Mapping[str, str], *, is_own: bool
) -> str:
    if taken is None:
        return ""
    holder = "you" if is_own else names.get(taken.by_name, taken.by_name)
    sentence = _begun(sentence_of(taken, holder))
    if taken.assigned_name:
        by = names.get(taken.assigned_name, taken.assigned_name)
        sentence += f"; handed over by {by}"
    return sentence


def keeps_out(user: Any, request: ApprovalRequest) -> str:
    """Return the sentence that says why an exclusive claim keeps this person from
    signing; empty if none does. No query if nobody else has taken it.
    """
    taken = shown_claim(request)
    if taken is None or taken.by_id == user.pk or not is_exclusive(request):
        return ""
    if not still_decides(taken, request):
        return ""
    return _kept_out_by(taken)


def _kept_out_by(taken: RequestClaim) -> str:
    return f"{_begun(sentence_of(taken))}. Nobody else can sign until then."


def _begun(words: str) -> str:
    """Return the words as the beginning of a sentence. Names stay as they are."""
    return words[:1].upper() + words[1:]


@posted_from_review
@single_fields()
def claim_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Take a request, give it back, or hand it to another person, and lead back to the
    review with what came of it.
    """
    act = _ACTS.get(request.POST.get("act", ""))
    if act is _release and _holds_posted(request, ref):
        return _released_unseen(request)
    run = visible_run(request.user, ref)
    try:
        if act is None:
            raise InvalidValue("“act” is claim, release or assign", path="act")
        messages.success(request, act(request, _posted_request(request, run)))
    except REFUSALS as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
        _show_unwritten(request)
    return redirect("review", run.id)


def _show_unwritten(request: HttpRequest) -> None:
    """Show the comment of a hand-over that was refused, so that its text is not lost."""
    comment = request.POST.get("comment", "").strip()
    if comment:
        messages.error(request, f"Your comment was not saved: “{comment}”")


def _holds_posted(request: HttpRequest, ref: str) -> bool:
    """Return whether this person has taken the posted request of a run that they may no
    longer see.
    """
    run = Run.objects.filter(requests=_uuid_in(request.POST.get("request", ""))).first()
    if run is None or ref not in (str(run.id), run.key):
        return False
    named = UUID(request.POST["request"])
    is_own = holds_claim(request.user, named)
    return is_own and not permissions.may_see_run(request.user, run)


def _released_unseen(request: HttpRequest) -> HttpResponse:
    """Give the posted request back, and lead to the inbox: its review is not shown to
    this person.
    """
    try:
        reviews.release(UUID(request.POST["request"]), by=request.user)
        messages.success(request, RELEASED)
    except REFUSALS as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
    return redirect("inbox")


def _uuid_in(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _posted_request(request: HttpRequest, run: Run) -> UUID:
    """Return the request of this run that was posted. Raises `UnknownThing`."""
    text = request.POST.get("request", "")
    named = _uuid_in(text)
    if named is None:
        raise UnknownThing(f"there is no request {text[:100]}")
    if not ApprovalRequest.objects.filter(id=named, run=run).exists():
        raise UnknownThing(f"there is no request {named}")
    return named


def _claim(request: HttpRequest, named: UUID) -> str:
    reviews.claim(named, by=request.user)
    return "You have taken this review."


def _release(request: HttpRequest, named: UUID) -> str:
    reviews.release(named, by=request.user)
    return RELEASED


def _assign(request: HttpRequest, named: UUID) -> str:
    to = active_account(request.POST.get("to", ""), "to")
    # Browsers post the ends of lines as networks have them.
    comment = request.POST.get("comment", "").replace("\r\n", "\n")
    reviews.assign(named, to=to, by=request.user, comment=comment)
    return f"The review is handed to {to.get_username()}."


_ACTS: Mapping[str, Callable[[HttpRequest, UUID], str]] = {
    "claim": _claim,
    "release": _release,
    "assign": _assign,
}
