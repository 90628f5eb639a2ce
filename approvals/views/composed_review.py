"""A review, composed for one person: the requests of a run with their writes, decisions
and drafts.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Exists, OuterRef, Q, prefetch_related_objects

from approvals import permissions
from approvals.display.value_types import type_of_channel
from approvals.drafts import DraftChoice, drafts_of
from approvals.gates.departed_line import DepartedLine, departed_line
from approvals.gates.lost_version import refusal_to_sign
from approvals.gates.request_state import RequestState, load_states
from approvals.models import (
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from approvals.results.earlier_askings import earlier_askings
from approvals.views import (
    consequences,
    group_form,
    inbox,
    review_form,
    signatures,
    write_cards,
)
from approvals.views.asked_before import asked_before
from approvals.views.card_pages import MANY, DrawnCards, LinePages, drawing_with
from approvals.views.drafted_outcome import drafted_outcome
from approvals.views.people.claim_cards import claim_cards
from approvals.views.shown_review import Review
from approvals.views.signing_reasons import reasons_not_to_sign
from approvals.views.write_cards import Question, Viewer, WriteCard
from approvals.views.write_groups import WriteGroup
from checkpoints import versions
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.graphs.compile import Compiled

WORDS = {"approve": "Approve", "edit": "Edit", "reject": "Reject", "skip": "Skip"}


def review_of(
    run: Run,
    user: Any,
    *,
    key: str = "",
    drawing: DrawnCards,
    seen: Iterable[str] = (),
    opened: Iterable[str] = (),
) -> Review:
    """Return the review as this person sees it, with their unsigned choices. The number
    of queries does not grow with writes or requests. The requests in `seen` are on a
    page that is open, and stay on it once they are settled. In a review of many writes
    only the `opened` ones, and those with an unsigned edit, are drawn whole.
    """
    states = states_of(run, list(filter(inbox.is_uuid, seen)))
    requests = [state.request for state in states]
    standing = {state.request.id: state for state in states}
    # Without the graph's version the page is drawn, but nothing can be edited.
    compiled = versions.graph_for(run)
    line = departed_line(run, compiled, states)
    decisions = _decisions_with_people(states)
    last_decisions = _last_decisions(decisions)
    refusal = refusal_to_sign(run)
    why_not = reasons_not_to_sign(user, requests, refused=refusal is not None)

    # Drafted edits are drawn even if nobody opened them: what was typed must show.
    drafts = drafts_of(user, run)
    count = sum(len(state.writes) for state in states)
    drawing = drawing_with(drafts, drawing, count)
    drawn: set[str] | None = None
    if count > MANY:
        drawn = _drawn_writes(opened, drafts)

    questions = _questions(
        states,
        last_decisions,
        compiled,
        drawing=drawing,
        line=line,
        drawn=drawn,
        user=user,
        why_not=why_not,
    )
    _add_originals(questions, protection_of(run), compiled)
    _put_for_whom(questions, requests, user)
    _add_earlier_askings(questions, requests, user)

    # Drafts go onto slips before lines and groups look at them.
    drafts_on_slips = _put_drafts(questions, drafts)
    _put_lines(questions, drafts, user)
    # With many writes, most drafts have no slip, so all valid drafts are counted.
    counting = drafts_on_slips if drawn is None else _valid_drafts(questions, drafts)
    shown = Review(
        run=run,
        user=user,
        requests=questions,
        standing=standing,
        slots=signatures.slots(standing, last_decisions, user, _may_decide(questions)),
        outcomes=consequences.of_requests(compiled, states, line.ahead),
        key=key or uuid4().hex,
        number=newest_number(drafts) + 1,
        next=drafted_outcome(
            compiled, states, decisions, counting, user.pk, ahead=line.ahead
        ),
        drafts=drafts,
        refusal=refusal,
        claims=claim_cards(user, requests, why_not),
    )
    # The first pages; the view turns to those that the address requests.
    shown.turn(LinePages())
    return shown


def states_of(run: Run, seen: Sequence[str] = ()) -> list[RequestState]:
    """Return the state of the requests of `requests_of`, which are read once more if one
    was re-opened between the queries. Raises `TamperedRow` and `WrongKey`.
    """
    states = load_states(requests_of(run, seen), protection_of(run))
    if any(state.was_closed for state in states):
        states = load_states(requests_of(run, seen), protection_of(run))
    return states


def newest_number(drafts: Mapping[str, DraftChoice]) -> int:
    """Return the number under which the newest of the drafts was saved; 0 without
    drafts.
    """
    return max((draft.number for draft in drafts.values()), default=0)


def requests_of(run: Run, seen: Sequence[str] = ()) -> list[ApprovalRequest]:
    """Return the requests that the run has now and those in `seen`; if there are none,
    its last request.
    """
    here = ApprovalRequest.objects.filter(run=run, line=run.line)
    here = here.select_related("claim")
    statuses = [RequestStatus.OPEN, RequestStatus.SETTLED]
    if run.cancel_at:
        # What a cancelled run had asked for stays readable.
        statuses.append(RequestStatus.WITHDRAWN)
    shown = here.filter(Q(status__in=statuses) | Q(id__in=seen))
    # A re-opened request is listed once, as it is asked now.
    shown = shown.exclude(_asked_anew())
    requests: list[ApprovalRequest] = list(shown.order_by("opened_at", "id"))
    if seen:
        # The open page may show requests of a line that the run has left since.
        requests += ApprovalRequest.objects.filter(
            run=run, id__in=seen, status=RequestStatus.WITHDRAWN
        ).exclude(line=run.line)
    if not requests:
        # Nothing is open: the last request shows how it ended.
        last = here.order_by("-opened_at", "-id").first()
        requests = [last] if last else []
    # Otherwise each request would read its run again.
    for request in requests:
        request.run = run
    return requests


def _asked_anew() -> Q:
    """Return the condition of withdrawn requests whose task has asked again."""
    task = {name: OuterRef(name) for name in ("run", "line", "node", "visit", "index")}
    later = ApprovalRequest.objects.filter(**task, ordinal__gt=OuterRef("ordinal"))
    return Q(Exists(later), status=RequestStatus.WITHDRAWN)


def _decisions_with_people(states: Iterable[RequestState]) -> list[Decision]:
    """Return the decisions on these requests with their people, in the order of the
    log. One query; none without decisions.
    """
    decisions: list[Decision] = []
    for state in states:
        decisions += state.decisions
    prefetch_related_objects(decisions, "by")
    return sorted(decisions, key=attrgetter("event_seq"))


def _last_decisions(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the last decision on each write of each person, of a policy and of a
    deadline.
    """
    last: dict[tuple[Any, UUID], Decision] = {}
    for decision in decisions:
        # They are in the order of the log, so a later one replaces an earlier one.
        last[(decision.voter, decision.write)] = decision
    return list(last.values())


def _drawn_writes(opened: Iterable[str], drafts: Mapping[str, DraftChoice]) -> set[str]:
    """Return the writes of a review of many that are drawn whole."""
    drawn = set(opened)
    for write, draft in drafts.items():
        if draft.verdict == "edit":
            drawn.add(write)
    return drawn


def _questions(
    states: Sequence[RequestState],
    decisions: Sequence[Decision],
    compiled: Compiled | None,
    *,
    drawing: DrawnCards,
    line: DepartedLine,
    drawn: set[str] | None,
    user: Any,
    why_not: Mapping[UUID, str],
) -> list[Question]:
    """Return the requests as the page shows them, their writes numbered throughout."""
    questions: list[Question] = []
    first = 1
    for state in states:
        request_id = state.request.id
        own = [decision for decision in decisions if decision.request_id == request_id]
        question = write_cards.question(
            state,
            Viewer(user.pk, why_not[request_id]),
            own,
            compiled,
            first=first,
            drawing=drawing,
            line=line,
            drawn=drawn,
        )
        questions.append(question)
        first += len(state.writes)
    return questions


def _put_for_whom(
    questions: Sequence[Question], requests: Sequence[ApprovalRequest], user: Any
) -> None:
    """Put beside each question that this person may sign for whom they would."""
    held = permissions.held_shown(user)
    for question, request in zip(questions, requests, strict=True):
        if question.open and not question.why_not:
            people = permissions.delegators(request, held)
            question.for_whom = " or ".join(inbox.name_of(person) for person in people)


def _add_originals(
    questions: Sequence[Question],
    protection: Protection,
    compiled: Compiled | None,
) -> None:
    """Put the node's proposal beside each edited write. One query if anything was
    edited, else none.
    """
    edited: dict[UUID, WriteCard] = {}
    for question in questions:
        for slip in question.slips:
            # A question has no proposal.
            if slip.row.author_id is not None and not slip.is_question:
                edited[slip.row.write] = slip
    if not edited:
        return
    # The first revision is the proposal of the node itself.
    for row in PendingWrite.objects.filter(write__in=edited, revision=1):
        sealed_rows.verify_row(row, protection)
        declared = type_of_channel(compiled, row.node, row.channel)
        write_cards.add_original(edited[row.write], read_value(row, "value"), declared)


def _add_earlier_askings(
    questions: Iterable[Question], requests: Sequence[ApprovalRequest], user: Any
) -> None:
    """Add to each question what its gate asked before. No query if none did."""
    earlier = earlier_askings(requests)
    for question in questions:
        if question.id in earlier:
            question.before = asked_before(earlier[question.id], user)


def _may_decide(questions: Iterable[Question]) -> bool:
    for question in questions:
        if any(line.may for line in question.lines):
            return True
        if any(slip.may for slip in question.slips):
            return True
    return False


def _put_drafts(
    questions: Iterable[Question],
    drafts: Mapping[str, DraftChoice],
) -> dict[str, DraftChoice]:
    """Put drafts onto the slips, and return those that were put. The page mentions a
    draft for another revision, and never applies it.
    """
    put: dict[str, DraftChoice] = {}
    for question in questions:
        for slip in question.slips:
            draft = drafts.get(slip.write)
            if draft is not None and _put_draft(slip, draft):
                put[slip.write] = draft
    return put


def _put_draft(slip: WriteCard, draft: DraftChoice) -> bool:
    """Put a draft onto its slip, and return whether it would count."""
    if slip.withdrawn and draft.verdict:
        slip.not_sent = write_cards.CHOSEN[draft.verdict]
    if not slip.open:
        return False
    if draft.hash != slip.row.hash:
        # The page says which choice was for an older revision.
        slip.lost = WORDS.get(draft.verdict, "")
        return False
    if not slip.may:
        return False
    write_cards.keep_choice(slip, review_form.choice_of(draft, slip.control))
    return True


def _put_lines(
    questions: Sequence[Question],
    drafts: Mapping[str, DraftChoice],
    user: Any,
) -> None:
    """Put drafts onto lines and groups, and the drawn slips where they belong."""
    number = 0
    for question in questions:
        # Only some writes are drawn whole; the others are lines without a slip.
        slips = {slip.write: slip for slip in question.slips}
        group_form.note_drafts(question.groups, drafts)
        for line in question.apart:
            line.chosen = group_form.drafted_verdict(line, drafts)
            line.slip = slips.get(line.write)
        for group in question.groups:
            number += 1
            group.number = number
            _complete_group(group, question, slips)
        if question.lines:
            _add_opened_tokens(question.slips, user)


def _complete_group(
    group: WriteGroup,
    question: Question,
    slips: Mapping[str, WriteCard],
) -> None:
    group.reason_required = group.channel in question.reason_required
    group.opened = [slips[line.write] for line in group.lines if line.write in slips]
    if group.chosen == "approve":
        # The samples of a group with a drafted approval were opened when it was chosen.
        group.seen |= group.sample_writes


def _add_opened_tokens(slips: Iterable[WriteCard], user: Any) -> None:
    for slip in slips:
        slip.opened_token = group_form.opened_token(
            user.pk, slip.write, str(slip.row.hash)
        )


def _valid_drafts(
    questions: Sequence[Question],
    drafts: Mapping[str, DraftChoice],
) -> dict[str, DraftChoice]:
    """Return the drafts that would count if they were signed now."""
    valid: dict[str, DraftChoice] = {}
    for question in questions:
        for line in question.lines:
            if line.may and line.chosen:
                valid[line.write] = drafts[line.write]
    return valid
