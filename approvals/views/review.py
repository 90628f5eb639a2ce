"""The review page of one run, and signing: one page for all that the run asks, one act for all that is signed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID, uuid4

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from approvals import permissions, reviews
from approvals.gates.request_state import RequestState, load_states
from approvals.gates.withdrawal import who_asked
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.views import card_pages, consequences, review_form, write_cards
from approvals.views.card_pages import CardPages
from approvals.views.inbox import asked_of
from approvals.views.page import opens_payloads, render, single_fields, visible_run
from approvals.views.review_form import Choice
from approvals.views.write_cards import Drawing, Question, Slot, WriteCard
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import registry
from orchestrator.engine.errors import (
    REFUSALS,
    AlreadyDecided,
    CountersignError,
    InvalidValue,
    KeyConflict,
    NotAReviewer,
    PayloadTooLarge,
    StaleProposal,
    UnknownThing,
    WrongStatus,
)

ANSWERS: dict[type[CountersignError], int] = {
    InvalidValue: 422,
    PayloadTooLarge: 422,
    UnknownThing: 404,
    NotAReviewer: 403,
    StaleProposal: 409,
    AlreadyDecided: 409,
    KeyConflict: 409,
    WrongStatus: 410,
}
"""What the page answers for each refusal of the verb."""
MANY = 12
"""Writes above which an edit form is drawn field by field only where somebody asks for it."""


@dataclass(slots=True)
class Review:
    """Everything that the template shows."""

    run: Run
    user: Any
    requests: list[Question]
    standing: dict[UUID, RequestState]
    slots: list[Slot]
    outcomes: list[consequences.Outcomes]
    key: str
    message: str = ""
    message_style: str = "wait"
    problems: list[dict[str, str]] = field(default_factory=list)
    icons: tuple[tuple[str, str], ...] = (("approve", "check"), ("edit", "pen"), ("reject", "x"))

    @property
    def slips(self) -> list[WriteCard]:
        return [slip for question in self.requests for slip in question.slips]

    @property
    def cells(self) -> list[WriteCard]:
        return [slip for slip in self.slips if slip.may]

    @property
    def may_sign(self) -> bool:
        return bool(self.cells)

    @property
    def left(self) -> int:
        return sum(1 for slip in self.cells if not slip.chosen)

    @property
    def title(self) -> str:
        return self.requests[0].title if self.requests else f"Reviews of {self.run}"

    @property
    def many(self) -> bool:
        return len(self.slips) > MANY

    @property
    def url(self) -> str:
        return reverse("review", args=[self.run.id])

    @property
    def gone(self) -> str:
        if self.run.cancel_at:
            at, by = timezone.localtime(self.run.cancel_at), who_asked(self.run.id) or "the system"
            return f"The run was cancelled at {at:%H:%M} by {by}. None of these writes will happen."
        if self.run.status in CLOSED_TO_DECISIONS:
            return f"The run is {self.run.status}, so nothing can be decided in it any more."
        return ""

    @property
    def signed(self) -> int:
        return sum(1 for slot in self.slots if not slot.open)

    @property
    def quorum(self) -> int:
        return len(self.slots)

    @property
    def _requests(self) -> list[ApprovalRequest]:
        return [asked.request for asked in self.standing.values()]

    @property
    def nodes(self) -> str:
        return ", ".join(dict.fromkeys(r.node for r in self._requests)) or self.run.at_node

    @property
    def asked_of(self) -> str:
        names = {p for r in self._requests for p in r.policy["reviewers"]}
        quorum = max((r.quorum for r in self._requests), default=1)
        return asked_of(sorted(names), self.user) + (f", {quorum} different people" if quorum > 1 else "")

    @property
    def opened_at(self) -> Any:
        return min((r.opened_at for r in self._requests if r.status == RequestStatus.OPEN), default=None)

    @property
    def deadline(self) -> Any:
        return min((r.deadline for r in self._requests if r.deadline and r.status == RequestStatus.OPEN), default=None)

    @property
    def run_url(self) -> str:
        return reverse("run", args=[self.run.id])

    @property
    def sprite(self) -> str:
        return static("countersign/img/sprite.svg")


@login_required
@require_safe
@opens_payloads
def review_page(request: HttpRequest, ref: str) -> HttpResponse:
    """What the run asks, as it stands now."""
    wanted = set(request.GET.getlist("edit"))
    pages = CardPages.of_query(request.GET.getlist(card_pages.QUERY))
    drawing = Drawing(fields=wanted.__contains__, asked=wanted.__contains__, pages=pages)
    return _shown(request, review_of(visible_run(request.user, ref), request.user, drawing=drawing))


@login_required
@require_POST
@single_fields(repeated={"write"})
@opens_payloads
def sign_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Sign what was posted: to the receipt, or the same page again with what went wrong and every choice kept."""
    run = visible_run(request.user, ref)
    shown = review_of(run, request.user, key=request.POST.get("key", "")[:200], drawing=_as_posted(request))
    controls = {slip.write: slip.control for slip in shown.slips if slip.control is not None}
    chosen = review_form.choices(request.POST, controls)
    if review_form.unreadable(list(chosen.values())):
        return _again(request, shown, chosen, InvalidValue("An edit cannot be read. Nothing was signed."))
    if not chosen:
        nothing = InvalidValue("Nothing was decided, so nothing was signed. Choose for at least one write.")
        return _again(request, shown, chosen, nothing)
    try:
        decisions, by = [choice.decision() for choice in chosen.values()], cast(AbstractBaseUser, request.user)
        receipt = reviews.sign(run.id, decisions, by=by, idempotency_key=shown.key or None)
    except REFUSALS as error:
        return _refused(request, run, chosen, error)
    return redirect("receipt", receipt.id)


def _refused(request: HttpRequest, run: Run, chosen: dict[str, Choice], error: CountersignError) -> HttpResponse:
    if isinstance(error, InvalidValue | PayloadTooLarge) and str(error.facts.get("write")) in chosen:
        choice = chosen[str(error.facts["write"])]
        found = error.facts.get("errors") or [{"path": str(error.facts.get("path", "")), "reason": error.message}]
        review_form.refuse(choice, error.message, found, channel=str(error.facts.get("channel", "")))
    # Read anew: what stood in the way may have happened since the page was built. A spent key must not be sent again.
    spent = isinstance(error, KeyConflict | StaleProposal | AlreadyDecided)
    key = uuid4().hex if spent else request.POST.get("key", "")
    shown = review_of(visible_run(request.user, run.id), request.user, key=key, drawing=_as_posted(request))
    return _again(request, shown, chosen, error)


def _as_posted(request: HttpRequest) -> Drawing:
    """The edit forms that were posted. One that was filled in field by field has no control with its write's bare
    name; one that was chosen without having been drawn is drawn now.
    """
    drawn = {name.removeprefix("e-").partition(".")[0] for name in request.POST if name.startswith("e-")}
    return Drawing(
        fields=lambda write: f"e-{write}" not in request.POST,
        asked=lambda write: write in drawn or request.POST.get(f"v-{write}") == "edit",
    )


def _again(request: HttpRequest, shown: Review, chosen: dict[str, Choice], error: CountersignError) -> HttpResponse:
    moved = set(error.facts.get("moved", ()))
    for slip in shown.slips:
        choice = chosen.get(slip.write)
        if choice and slip.may and slip.write not in moved:
            write_cards.keep_choice(slip, choice)
    shown.message, shown.message_style = _sentence(error), "bad" if isinstance(error, InvalidValue) else "wait"
    shown.problems = [*_problems(shown, chosen), *_moved(shown, moved)]
    return _shown(request, shown, status=ANSWERS.get(type(error), 409))


def _sentence(error: CountersignError) -> str:
    if isinstance(error, StaleProposal):
        return "Not signed: what you saw has changed since. Decide again on what moved; your other choices are kept."
    if isinstance(error, AlreadyDecided):
        return f"Not signed: {error.message}."
    if isinstance(error, KeyConflict):
        return "You already signed from this page, with other choices. What you chose now was not sent."
    if isinstance(error, InvalidValue) and error.facts.get("write"):
        return "Nothing was signed: one write needs mending first. All choices are kept."
    return error.message


def _problems(shown: Review, chosen: dict[str, Choice]) -> Iterable[dict[str, str]]:
    for slip in shown.slips:
        for text in chosen[slip.write].errors if slip.write in chosen else ():
            yield {"anchor": slip.anchor, "title": slip.title, "text": text}


def _moved(shown: Review, moved: set[str]) -> Iterable[dict[str, str]]:
    for slip in shown.slips:
        if slip.write in moved:
            cleared = "Your choice was for the older version, so it was cleared."
            slip.stale = slip.stale or f"Changed since you opened it. {cleared}"
            yield {"anchor": slip.anchor, "title": slip.title, "text": "changed since you opened it"}


def _shown(request: HttpRequest, shown: Review, *, status: int = 200) -> HttpResponse:
    return render(request, "approvals/review.html", {"page": shown}, section="reviews", status=status)


def review_of(run: Run, user: Any, *, key: str = "", drawing: Drawing) -> Review:
    """The review as this person sees it. The number of queries does not grow with writes or requests.

    A few writes are all edited field by field; of many only those that somebody asked for, so that the page stays
    light.
    """
    standing = {asked.request.id: asked for asked in load_states(_requests(run), protection_of(run))}
    made = Decision.objects.filter(request__in=standing).select_related("by").order_by("event_seq")
    decisions = list({(d.by_id, d.write): d for d in made}.values())  # of each person the last on each write
    compiled = registry.find_graph(run.fingerprint)
    why_not = _why_not(user, [asked.request for asked in standing.values()], run)
    few = sum(len(asked.writes) for asked in standing.values()) <= MANY
    drawing = replace(drawing, fields=lambda _: True) if few else drawing
    questions: list[Question] = []
    for request_id, asked in standing.items():
        own = [d for d in decisions if d.request_id == request_id]
        first = 1 + sum(len(q.slips) for q in questions)
        shown = write_cards.question(asked, why_not[request_id], own, compiled, first=first, drawing=drawing)
        questions.append(shown)
    _add_originals(questions)
    may_sign = any(slip.may for q in questions for slip in q.slips)
    return Review(
        run=run,
        user=user,
        requests=questions,
        standing=standing,
        slots=write_cards.slots(standing, decisions, user, may_sign),
        outcomes=consequences.of_requests(compiled, [a.request for a in standing.values() if a.outcome is None]),
        key=key or uuid4().hex,
    )


def _requests(run: Run) -> list[ApprovalRequest]:
    """What the run asks now; where it asks nothing, what it asked last."""
    here = ApprovalRequest.objects.filter(run=run, line=run.line)
    # What a cancelled run had asked stays readable.
    shown = [RequestStatus.OPEN, RequestStatus.SETTLED] + ([RequestStatus.WITHDRAWN] if run.cancel_at else [])
    open_now = list(here.filter(status__in=shown).order_by("opened_at", "id"))
    if open_now:
        found = open_now
    else:
        last = here.order_by("-opened_at", "-id").first()
        found = [last] if last else []
    for one in found:
        one.run = run
    return found


def _why_not(user: Any, requests: Sequence[ApprovalRequest], run: Run) -> dict[UUID, str]:
    """For each request why this person may not sign it; empty where he may. A constant number of queries."""
    held = permissions.principals_of(user)
    mine = {r.id for r in requests if not set(r.policy["reviewers"]).isdisjoint(held)}
    four_eyes = next((r for r in requests if r.id in mine and r.policy.get("four_eyes")), None)
    shaped = permissions.excluded(user, four_eyes) if four_eyes else ""
    return {
        r.id: permissions.closed(r)
        or ("You are not one of its reviewers." if r.id not in mine else shaped if r.policy.get("four_eyes") else "")
        for r in requests
    }


def _add_originals(questions: Sequence[Question]) -> None:
    """Beside an edited write stands what the node had proposed. One query, where anything was edited."""
    edited = {slip.row.write: slip for q in questions for slip in q.slips if slip.row.author_id is not None}
    first = PendingWrite.objects.filter(write__in=edited, revision=1) if edited else ()
    for row in first:
        write_cards.add_original(edited[row.write], read_value(row, "value"))
