"""The review page of one run, and signing: one page for all that the run asks, one act for all that is signed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions, reviews
from approvals.drafts import DraftChoice, drafts_of
from approvals.gates.departed_line import departed_line
from approvals.gates.lost_version import refusal_to_sign
from approvals.gates.request_state import RequestState, load_states
from approvals.gates.withdrawal import who_asked
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.views import card_pages, consequences, group_form, inbox, review_form, signatures, write_cards
from approvals.views.card_pages import FIELDS, MANY, CardPages, Drawing, LinePages, drawing_with
from approvals.views.drafted_outcome import Next, drafted_outcome
from approvals.views.page import LISTS, opens_payloads, posted_from_review, render, single_fields, visible_run
from approvals.views.review_form import Choice
from approvals.views.signatures import Slot
from approvals.views.value_types import type_of_channel
from approvals.views.write_cards import Question, Viewer, WriteCard
from approvals.views.write_groups import Group, WriteLine
from checkpoints import versions
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import (
    REFUSALS,
    AlreadyDecided,
    CountersignError,
    IncompatibleGraph,
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
    IncompatibleGraph: 409,
}
"""What the page answers for each refusal of the verb."""
MOST_OPENED = 20
"""Writes of a review of many that one address opens."""
NO_VERSION = "Nobody can sign this now: the version of the graph that is here could not go on with the run."
WORDS = {"approve": "Approve", "edit": "Edit", "reject": "Reject"}


@dataclass(frozen=True, slots=True)
class Tally:
    """How many writes are drafted with which verdict, and how many are left."""

    approve: int
    edit: int
    reject: int
    left: int

    @property
    def total(self) -> int:
        return self.approve + self.edit + self.reject + self.left

    @property
    def done(self) -> int:
        return self.total - self.left

    @property
    def edit_from(self) -> int:
        return self.approve

    @property
    def reject_from(self) -> int:
        return self.approve + self.edit


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
    number: int = 1
    next: Next | None = None
    refusal: IncompatibleGraph | None = None
    message: str = ""
    message_style: str = "wait"
    problems: list[dict[str, str]] = field(default_factory=list)
    kept: Mapping[str, DraftChoice] = field(default_factory=dict)
    icons: tuple[tuple[str, str], ...] = (("approve", "check"), ("edit", "pen"), ("reject", "x"))

    @property
    def slips(self) -> list[WriteCard]:
        return [slip for question in self.requests for slip in question.slips]

    @property
    def cells(self) -> list[WriteCard]:
        return [slip for slip in self.slips if slip.may]

    @property
    def may_sign(self) -> bool:
        return self.to_decide > 0

    @property
    def lines(self) -> list[WriteLine]:
        """Every write, in a review of many."""
        return [line for question in self.requests for line in question.lines]

    @property
    def groups(self) -> list[Group]:
        return [group for question in self.requests for group in question.groups]

    @property
    def count(self) -> int:
        return len(self.lines) or len(self.slips)

    @property
    def to_decide(self) -> int:
        """How many writes this person may decide."""
        return sum(1 for line in self.lines if line.may) if self.many else len(self.cells)

    @property
    def tally(self) -> Tally:
        """How many of them are drafted, by verdict."""
        chosen = [line.chosen for line in self.lines if line.may] if self.many else [s.chosen for s in self.cells]
        return Tally(*(chosen.count(verdict) for verdict in ("approve", "edit", "reject", "")))

    @property
    def left(self) -> int:
        return self.tally.left

    @property
    def current(self) -> str:
        """The anchor of the slip that keys decide on a fresh page; empty where nothing can be decided."""
        units: list[Any] = [*self.groups, *self.cells]
        undecided = (unit.anchor for unit in units if not unit.chosen)
        return next(undecided, units[0].anchor if units else "")

    @property
    def title(self) -> str:
        return self.requests[0].title if self.requests else f"Reviews of {self.run}"

    @property
    def many(self) -> bool:
        return bool(self.lines)

    @property
    def opened(self) -> str:
        """What an address of this page says so that what is open stays open."""
        if not self.many:
            return ""
        return "".join(f"open={slip.write}&" for slip in self.slips)

    def turn(self, pages: LinePages) -> None:
        """Show these pages of the lists of writes."""
        for question in self.requests:
            question.pager = pages.pager(str(question.id), len(question.apart))
            question.shown_lines = pages.page(str(question.id), question.apart)
            for group in question.groups:
                group.pager = pages.pager(group.id, group.count)
                group.shown_lines = pages.page(group.id, group.lines) if pages.is_asked(group.id) else []

    @property
    def url(self) -> str:
        return reverse("review", args=[self.run.id])

    @property
    def live_url(self) -> str:
        """The page with what stands on it now, for when it asks what has become of that."""
        return f"{self.url}?{urlencode({'seen': [str(question.id) for question in self.requests]}, doseq=True)}"

    @property
    def gone(self) -> str:
        """Why nothing can be decided here any more; empty where something can."""
        if self.run.cancel_at:
            account = who_asked(self.run.id)
            by = inbox.names_of([account]).get(account, "the system")
            at = inbox.time_of(self.run.cancel_at)
            return f"The run was cancelled at {at} by {by}. None of these writes will happen."
        if any(asked.open for asked in self.requests) and self.run.status not in CLOSED_TO_DECISIONS:
            return ""
        if not self.requests:
            return ""
        return f"{self._end} Nothing left to decide."

    @property
    def _end(self) -> str:
        """How the last of what was asked here ended."""
        settled = [slot for slot in self.slots if slot.at is not None and slot.counts]
        if settled and not any(asked.open for asked in self.requests):
            people = " and ".join("you" if slot.name == "You" else slot.name for slot in settled)
            at = inbox.time_of(max(slot.at for slot in settled if slot.at is not None))
            return f"Settled by {people} at {at}."
        if any(asked.open for asked in self.requests):
            return f"The run is {self.run.status}."
        expired = [r.deadline for r in self._requests if r.status == RequestStatus.EXPIRED and r.deadline]
        if expired:
            return f"Time ran out at {inbox.time_of(max(expired))}."
        return "This was withdrawn."

    @property
    def cancelled(self) -> bool:
        return bool(self.run.cancel_at)

    @property
    def waits(self) -> bool:
        """Whether people can still decide something here."""
        return not self.gone and any(asked.open for asked in self.requests)

    @property
    def signed(self) -> int:
        return sum(1 for slot in self.slots if not slot.open and slot.counts)

    @property
    def quorum(self) -> int:
        return sum(1 for slot in self.slots if slot.counts)

    @property
    def _requests(self) -> list[ApprovalRequest]:
        return [asked.request for asked in self.standing.values()]

    @property
    def nodes(self) -> str:
        return ", ".join(dict.fromkeys(inbox.name_of_node(r.node) for r in self._requests)) or self.run.at_node

    @property
    def asked_of(self) -> str:
        names = {p for r in self._requests for p in r.policy["reviewers"]}
        quorum = max((r.quorum for r in self._requests), default=1)
        return inbox.asked_of(sorted(names), self.user) + (f", {quorum} different people" if quorum > 1 else "")

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
    seen = request.GET.getlist("seen")
    opened = [*wanted, *pages.writes, *request.GET.getlist("open")][:MOST_OPENED]
    shown = review_of(visible_run(request.user, ref), request.user, drawing=drawing, seen=seen, opened=opened)
    shown.turn(LinePages.of_query(request.GET.getlist("list")))
    drawn = {slip.write for slip in shown.slips}
    for group in shown.groups:
        group.seen |= {line.write for line in group.samples if line.write in drawn}
    return _shown(request, shown)


@posted_from_review
@single_fields(repeated=LISTS)
@opens_payloads
def sign_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Sign what was posted: to the receipt, or the same page again with what went wrong and every choice kept."""
    run = visible_run(request.user, ref)
    shown = _review_posted(request, run, key=request.POST.get("key", "")[:200])
    chosen = choices_posted(request, shown)
    if shown.refusal is not None:
        return show_again(request, shown, chosen, shown.refusal)
    if shown.many and _has_newer(shown, request.POST):
        return show_again(request, shown, chosen, CountersignError("newer_choices", NEWER))
    if any(group.errors for group in shown.groups):
        return show_again(request, shown, chosen, InvalidValue("Nothing was signed: a group cannot be decided yet."))
    if review_form.unreadable(list(chosen.values())):
        return show_again(request, shown, chosen, InvalidValue("An edit cannot be read. Nothing was signed."))
    if not chosen:
        nothing = InvalidValue("Nothing was decided, so nothing was signed. Choose for at least one write.")
        return show_again(request, shown, chosen, nothing)
    try:
        decisions, by = [choice.decision() for choice in chosen.values()], cast(AbstractBaseUser, request.user)
        receipt = reviews.sign(run.id, decisions, by=by, idempotency_key=shown.key or None)
    except REFUSALS as error:
        return _refused(request, run, chosen, error)
    return redirect("receipt", receipt.id)


def _review_posted(request: HttpRequest, run: Run, *, key: str) -> Review:
    """The review as it stands, with what was open on the page that was posted."""
    seen, opened = request.POST.getlist("seen"), request.POST.getlist("write")
    return review_of(run, request.user, key=key, drawing=as_posted(request.POST), seen=seen, opened=opened)


def choices_posted(request: HttpRequest, shown: Review) -> dict[str, Choice]:
    """Everything that was chosen, by write. Of a review of many the page posts what is open on it and the verdicts of
    groups; the rest of what this person chose is what was drafted.
    """
    controls = {slip.write: slip.control for slip in shown.slips if slip.control is not None}
    posted = review_form.choices(request.POST, controls)
    if not shown.many:
        return posted
    group_form.note_opened(shown.groups, request.POST, request.user.pk)
    of_groups = group_form.group_choices(shown.groups, request.POST)
    on_page = {*request.POST.getlist("write")}
    drafted = {
        line.write: review_form.choice_of(shown.kept[line.write], controls.get(line.write))
        for line in shown.lines
        if line.may and line.chosen and line.write not in on_page
    }
    return {**drafted, **of_groups, **posted}


def _has_newer(shown: Review, posted: QueryDict) -> bool:
    """Whether another page of this person has drafted something since the posted one was drawn, or last saved."""
    number = posted.get("number", "")
    at = int(number) if number.isdecimal() and len(number) < 16 else 1
    return any(draft.number >= at for draft in shown.kept.values())


NEWER = "Not signed: another page of yours has newer choices. Look at what is chosen now, and sign again."


def _refused(request: HttpRequest, run: Run, chosen: dict[str, Choice], error: CountersignError) -> HttpResponse:
    if isinstance(error, InvalidValue | PayloadTooLarge) and str(error.facts.get("write")) in chosen:
        choice = chosen[str(error.facts["write"])]
        found = error.facts.get("errors") or [{"path": str(error.facts.get("path", "")), "reason": error.message}]
        review_form.refuse(choice, error.message, found, channel=str(error.facts.get("channel", "")))
    # Read anew: what stood in the way may have happened since the page was built. A spent key must not be sent again.
    spent = isinstance(error, KeyConflict | StaleProposal | AlreadyDecided)
    key = uuid4().hex if spent else request.POST.get("key", "")
    shown = _review_posted(request, visible_run(request.user, run.id), key=key)
    return show_again(request, shown, chosen, error)


def as_posted(posted: QueryDict) -> Drawing:
    """The edit forms that were posted, each of which says which form it is; one that was chosen without having been
    drawn is drawn now.
    """
    drawn = {name.removeprefix("e-").partition(".")[0] for name in posted if name.startswith("e-")}
    shapes = {name.removeprefix("d-"): str(one) for name, one in posted.items() if name.startswith("d-")}
    return Drawing(
        fields=lambda write: shapes[write] == FIELDS if write in shapes else f"e-{write}" not in posted,
        asked=lambda write: write in drawn or posted.get(f"v-{write}") == "edit",
        posted=shapes,
    )


def show_again(request: HttpRequest, shown: Review, chosen: dict[str, Choice], error: CountersignError) -> HttpResponse:
    """The page with what was posted, and why it was not done."""
    moved = set(error.facts.get("moved", ()))
    for group in shown.groups:
        group.reason = request.POST.get(f"gr-{group.id}", group.reason)
        group.chosen = request.POST.get(f"g-{group.id}", group.chosen) if not group.errors else group.chosen
    group_form.note_opened(shown.groups, request.POST, request.user.pk)
    for slip in shown.slips:
        choice = chosen.get(slip.write)
        if choice and slip.may and slip.write not in moved:
            write_cards.keep_choice(slip, choice)
        # Nobody can decide here any more, and what was chosen on the page stays readable.
        if choice and slip.withdrawn:
            slip.not_sent = write_cards.CHOSEN[choice.verdict]
    lost = [slip for slip in shown.slips if slip.write in chosen and slip.settled_line]
    only = isinstance(error, AlreadyDecided | WrongStatus) and len(lost) == len(chosen)
    shown.message = _lost(lost) if only else _sentence(error, gone=bool(shown.gone))
    shown.message_style = "bad" if isinstance(error, InvalidValue) else "wait"
    shown.problems = [*_problems(shown, chosen), *_moved(shown, moved), *_settled(lost)]
    return _shown(request, shown, status=ANSWERS.get(type(error), 409))


def _sentence(error: CountersignError, *, gone: bool) -> str:
    """What went wrong. `gone`: the page says already that nothing is decided here any more, and why."""
    if isinstance(error, WrongStatus) and gone:
        return "Not signed: what you chose came too late and was not sent."
    if isinstance(error, StaleProposal):
        return "Not signed: what you saw has changed since. Decide again on what moved; your other choices are kept."
    if isinstance(error, AlreadyDecided):
        names = inbox.names_of(error.facts.get("by", ()))
        return f"Not signed: already settled by {', '.join(names.values()) or 'the system'}."
    if isinstance(error, KeyConflict):
        return "You already signed from this page, with other choices. What you chose now was not sent."
    if isinstance(error, InvalidValue) and error.facts.get("write"):
        return "Nothing was signed: one write must be corrected first. All choices are kept."
    return error.message


def _lost(lost: Sequence[WriteCard]) -> str:
    """What somebody else did to everything that was chosen."""
    lines = list(dict.fromkeys(slip.settled_line for slip in lost))
    if len(lines) == 1:
        return f"{lines[0]} Your draft{'' if len(lost) == 1 else 's'} {'was' if len(lost) == 1 else 'were'} not sent."
    return "Everything that you chose was settled meanwhile. Your drafts were not sent."


def _settled(lost: Sequence[WriteCard]) -> Iterable[dict[str, str]]:
    for slip in lost:
        yield {"anchor": slip.anchor, "title": slip.title, "text": slip.settled_line}


def _problems(shown: Review, chosen: dict[str, Choice]) -> Iterable[dict[str, str]]:
    for group in shown.groups:
        for text in group.errors:
            yield {"anchor": group.anchor, "title": group.title, "text": text}
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


def review_of(
    run: Run,
    user: Any,
    *,
    key: str = "",
    drawing: Drawing,
    seen: Iterable[str] = (),
    opened: Iterable[str] = (),
) -> Review:
    """The review as this person sees it, with what he chose and has not signed. The number of queries does not grow
    with writes or requests. The requests in `seen` stand on a page that is open, and stay on it when they are settled.
    Of many writes only the `opened` ones, and those with an edit that is not signed, are drawn whole.
    """
    found = requests_of(run, [text for text in seen if inbox.is_uuid(text)])
    states = load_states(found, protection_of(run))
    standing = {asked.request.id: asked for asked in states}
    compiled = versions.graph_for(run)
    line = departed_line(run, compiled, states)
    made = list(Decision.objects.filter(request__in=standing).select_related("by").order_by("event_seq"))
    decisions = list({(d.by_id, d.write): d for d in made}.values())  # of each person the last on each write
    refusal = refusal_to_sign(run)
    why_not = reasons_not_to_sign(user, [asked.request for asked in states], run, refused=refusal is not None)
    kept = drafts_of(user, run)
    count = sum(len(asked.writes) for asked in states)
    drawing = drawing_with(kept, drawing, count)
    drawn = {*opened, *(write for write, draft in kept.items() if draft.verdict == "edit")} if count > MANY else None
    questions: list[Question] = []
    first = 1
    for request_id, asked in standing.items():
        own = [d for d in decisions if d.request_id == request_id]
        viewer = Viewer(user.pk, why_not[request_id])
        questions.append(
            write_cards.question(asked, viewer, own, compiled, first=first, drawing=drawing, line=line, drawn=drawn)
        )
        first += len(asked.writes)
    _add_originals(questions, protection_of(run), compiled)
    shown_drafts = _put_drafts([slip for q in questions for slip in q.slips], kept)
    _put_lines(questions, kept, user)
    may_sign = any(line.may for q in questions for line in q.lines)
    may_sign = may_sign or any(slip.may for q in questions for slip in q.slips)
    drafts = shown_drafts if drawn is None else _valid_drafts(questions, kept)
    shown = Review(
        run=run,
        user=user,
        requests=questions,
        standing=standing,
        slots=signatures.slots(standing, decisions, user, may_sign),
        outcomes=consequences.of_requests(compiled, states, line.ahead),
        key=key or uuid4().hex,
        number=max((one.number for one in kept.values()), default=0) + 1,
        next=drafted_outcome(compiled, states, made, drafts, user.pk, ahead=line.ahead),
        kept=kept,
        refusal=refusal,
    )
    shown.turn(LinePages())
    return shown


def _valid_drafts(questions: Sequence[Question], kept: Mapping[str, DraftChoice]) -> dict[str, DraftChoice]:
    """The drafts that would count if they were signed now."""
    lines = (line for question in questions for line in question.lines)
    return {line.write: kept[line.write] for line in lines if line.may and line.chosen}


def _put_lines(questions: Sequence[Question], kept: Mapping[str, DraftChoice], user: Any) -> None:
    """Put drafts onto lines and groups, and the slips that are drawn where they belong."""
    for question in questions:
        slips = {slip.write: slip for slip in question.slips}
        group_form.note_drafts(question.groups, kept)
        for line in question.apart:
            line.chosen = group_form.drafted_verdict(line, kept)
            line.slip = slips.get(line.write)
        for group in question.groups:
            group.reason_required = group.channel in question.reason_required
            group.opened = [slips[line.write] for line in group.lines if line.write in slips]
            if group.chosen != "approve":
                continue
            # What is drafted was opened when it was chosen.
            group.seen |= {line.write for line in group.samples}
        for slip in question.slips if question.lines else ():
            slip.opened_token = group_form.opened_token(user.pk, slip.write, str(slip.row.hash))
    for number, group in enumerate((group for question in questions for group in question.groups), start=1):
        group.number = number


def _put_drafts(slips: Sequence[WriteCard], kept: Mapping[str, DraftChoice]) -> dict[str, DraftChoice]:
    """Put what was kept onto the slips, and give what was put. What was chosen for another revision is told, and never
    applied.
    """
    own: dict[str, DraftChoice] = {}
    for slip in slips:
        draft = kept.get(slip.write)
        if draft is not None and slip.withdrawn and draft.verdict:
            slip.not_sent = write_cards.CHOSEN[draft.verdict]
        if draft is None or not slip.open:
            continue
        if draft.hash != slip.row.hash:
            slip.lost = WORDS.get(draft.verdict, "")
        elif slip.may:
            own[slip.write] = draft
            write_cards.keep_choice(slip, review_form.choice_of(draft, slip.control))
    return own


def requests_of(run: Run, seen: Sequence[str] = ()) -> list[ApprovalRequest]:
    """What the run asks now, and what was `seen`; where that is nothing, what it asked last."""
    here = ApprovalRequest.objects.filter(run=run, line=run.line)
    older = ApprovalRequest.objects.filter(run=run, id__in=seen, status=RequestStatus.WITHDRAWN).exclude(line=run.line)
    # What a cancelled run had asked stays readable.
    shown = [RequestStatus.OPEN, RequestStatus.SETTLED] + ([RequestStatus.WITHDRAWN] if run.cancel_at else [])
    open_now = list(here.filter(Q(status__in=shown) | Q(id__in=seen)).order_by("opened_at", "id"))
    open_now += older if seen else ()
    if open_now:
        found = open_now
    else:
        last = here.order_by("-opened_at", "-id").first()
        found = [last] if last else []
    for one in found:
        one.run = run
    return found


def reasons_not_to_sign(user: Any, requests: Sequence[ApprovalRequest], run: Run, *, refused: bool) -> dict[UUID, str]:
    """For each request why this person may not sign it; empty where he may. `refused`: the version that is here could
    not go on with the run, so nobody may. A constant number of queries.
    """
    held = permissions.principals_of(user)
    mine = {r.id for r in requests if not set(r.policy["reviewers"]).isdisjoint(held)}
    four_eyes = next((r for r in requests if r.id in mine and r.policy.get("four_eyes")), None)
    shaped = permissions.excluded(user, four_eyes) if four_eyes else ""
    return {
        r.id: permissions.closed(r)
        or ("You are not one of its reviewers." if r.id not in mine else shaped if r.policy.get("four_eyes") else "")
        or (NO_VERSION if refused else "")
        for r in requests
    }


def _add_originals(questions: Sequence[Question], protection: Protection, compiled: Compiled | None) -> None:
    """Beside an edited write stands what the node had proposed. One query, where anything was edited."""
    edited = {slip.row.write: slip for q in questions for slip in q.slips if slip.row.author_id is not None}
    first = PendingWrite.objects.filter(write__in=edited, revision=1) if edited else ()
    for row in first:
        sealed_rows.verify_row(row, protection)
        declared = type_of_channel(compiled, row.channel)
        write_cards.add_original(edited[row.write], read_value(row, "value"), declared)
