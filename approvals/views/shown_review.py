"""A review as its page shows it: the questions with their writes, what the person has
drafted, how it ended, and who was asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import reverse
from django.utils.http import urlencode

from approvals import permissions
from approvals.drafts import DraftChoice
from approvals.gates.request_state import RequestState
from approvals.gates.withdrawal import who_asked
from approvals.inbox import bar_in, bar_queries
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views import consequences, inbox
from approvals.views.card_pages import LinePages
from approvals.views.drafted_outcome import Next
from approvals.views.page import read_number, render
from approvals.views.people.claim_cards import ClaimCard
from approvals.views.people.comment_box import comment_box, comment_queries
from approvals.views.people.shown_tiers import TierLine, asked_too, next_tiers
from approvals.views.signatures import Slot
from approvals.views.write_cards import Question, WriteCard
from approvals.views.write_groups import WriteGroup, WriteLine
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db.together import read_together
from checkpoints.models import Run
from orchestrator.engine.errors import IncompatibleGraph
from orchestrator.engine.graphs.confirmation import PASSWORD, strongest


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of writes that are drafted with each verdict, or undecided."""

    approve: int
    edit: int
    reject: int
    skip: int
    undecided: int

    @classmethod
    def of_verdicts(cls, verdicts: Sequence[str]) -> "Tally":
        """Count drafted verdicts; an empty one is an undecided write."""
        return cls(
            approve=verdicts.count("approve"),
            edit=verdicts.count("edit"),
            reject=verdicts.count("reject"),
            skip=verdicts.count("skip"),
            undecided=verdicts.count(""),
        )

    @property
    def total(self) -> int:
        return self.approve + self.edit + self.reject + self.skip + self.undecided

    @property
    def done(self) -> int:
        return self.total - self.undecided

    @property
    def edit_from(self) -> int:
        """The place in the meter at which the edited writes begin."""
        return self.approve

    @property
    def reject_from(self) -> int:
        """The place in the meter at which the rejected writes begin."""
        return self.approve + self.edit

    @property
    def skip_from(self) -> int:
        """The place in the meter at which the skipped writes begin."""
        return self.reject_from + self.reject


@dataclass
class Review:
    """A review with all that its template shows."""

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
    drafts: Mapping[str, DraftChoice] = field(default_factory=dict)
    unfolded: bool = False
    claims: Sequence[ClaimCard] = ()
    comment_text: str = ""
    comment_about: str = ""
    icons: tuple[tuple[str, str], ...] = (
        ("approve", "check"),
        ("edit", "pen"),
        ("reject", "x"),
        ("skip", "slash"),
    )

    @property
    def slips(self) -> list[WriteCard]:
        slips: list[WriteCard] = []
        for question in self.requests:
            slips += question.slips
        return slips

    @property
    def said_by_claims(self) -> set[UUID]:
        """The requests that this person cannot sign because of their claim."""
        return {card.request for card in self.claims if card.is_reason}

    @property
    def cells(self) -> list[WriteCard]:
        return [slip for slip in self.slips if slip.may]

    @property
    def may_sign(self) -> bool:
        return self.to_decide > 0

    @property
    def lines(self) -> list[WriteLine]:
        """Every write of a review of many; empty in a smaller review."""
        lines: list[WriteLine] = []
        for question in self.requests:
            lines += question.lines
        return lines

    @property
    def groups(self) -> list[WriteGroup]:
        groups: list[WriteGroup] = []
        for question in self.requests:
            groups += question.groups
        return groups

    @property
    def count(self) -> int:
        # In a review of many only some of the lines have slips.
        return len(self.lines) or len(self.slips)

    @property
    def _decidable(self) -> Sequence[WriteLine | WriteCard]:
        """The writes that this person may decide, as lines or as slips."""
        lines = self.lines
        if lines:
            return [line for line in lines if line.may]
        return self.cells

    @property
    def to_decide(self) -> int:
        """The number of writes that this person may decide."""
        return len(self._decidable)

    @property
    def tally(self) -> Tally:
        """Return how many of the writes that this person may decide are drafted, by
        verdict.
        """
        return Tally.of_verdicts([write.chosen for write in self._decidable])

    @property
    def undecided(self) -> int:
        return self.tally.undecided

    @property
    def current(self) -> str:
        """The anchor of the slip or group on which the keyboard acts when the page is
        fresh; empty if nothing can be decided.
        """
        units: list[Any] = [*self.groups, *self.cells]
        for unit in units:
            if not unit.chosen:
                return str(unit.anchor)
        return units[0].anchor if units else ""

    @property
    def title(self) -> str:
        if self.requests:
            return self.requests[0].title
        return f"Reviews of {self.run}"

    @property
    def many(self) -> bool:
        return bool(self.lines)

    @property
    def opened(self) -> str:
        """The query parameters that keep open slips open when the page is left."""
        if not self.many:
            return ""
        return "".join(f"open={slip.write}&" for slip in self.slips)

    def turn(self, pages: LinePages) -> None:
        """Show these pages of the lists of writes."""
        for question in self.requests:
            name = str(question.id)
            question.pager = pages.pager(name, len(question.apart))
            question.shown_lines = pages.page(name, question.apart)
            for group in question.groups:
                group.pager = pages.pager(group.id, group.count)
                # The lines of a group are folded until their list is requested.
                group.shown_lines = []
                if pages.is_requested(group.id):
                    group.shown_lines = pages.page(group.id, group.lines)

    @property
    def _policies(self) -> list[Mapping[str, Any]]:
        """The policies of the requests that this person may decide now."""
        policies: list[Mapping[str, Any]] = []
        for question in self.requests:
            if question.open and not question.why_not:
                policies.append(self.standing[question.id].request.policy)
        return policies

    @property
    def confirm(self) -> str:
        """The method with which this person confirms what they sign here, or empty."""
        return strongest(policy.get("confirm", "") for policy in self._policies)

    @property
    def takes_password(self) -> bool:
        """Return whether a password confirms something here, beside what asks for more."""
        return any(policy.get("confirm") == PASSWORD for policy in self._policies)

    @property
    def confirm_limits(self) -> list[str]:
        """The amounts up to which nothing is confirmed, as the gates name them."""
        limits = [policy.get("confirm_above") for policy in self._policies]
        return list(dict.fromkeys(limit for limit in limits if limit is not None))

    @property
    def url(self) -> str:
        return reverse("review", args=[self.run.id])

    @property
    def live_url(self) -> str:
        """The address that also returns the requests shown now, so that an open page
        can learn what became of them.
        """
        seen = [str(question.id) for question in self.requests]
        return f"{self.url}?{urlencode({'seen': seen}, doseq=True)}"

    @cached_property
    def ending(self) -> str:
        """The reason why nothing can be decided here now; empty where something can.
        One query for a run that was cancelled.
        """
        # First, because a cancelled run keeps its status until its worker commits.
        if self.run.cancel_at:
            account = who_asked(self.run.id)
            by = inbox.names_of([account]).get(account, "the system")
            at = inbox.time_of(self.run.cancel_at)
            return (
                f"The run was cancelled at {at} by {by}."
                " None of these writes will happen."
            )
        if self._has_open_request and self.run.status not in CLOSED_TO_DECISIONS:
            return ""
        if not self.requests:
            return ""
        return f"{self._end} Nothing left to decide."

    @property
    def _has_open_request(self) -> bool:
        return any(question.open for question in self.requests)

    @property
    def _end(self) -> str:
        """Return how the last of the requests on this page ended."""
        if self._has_open_request:
            return f"The run is {self.run.status}."
        for slot in self.slots:
            if slot.by_deadline and slot.at is not None:
                time = inbox.time_of(slot.at)
                return f"Time ran out at {time}; {slot.deadline_did} by the deadline."
        # Signatures outrank a deadline that passed afterwards.
        settled = self._settled_sentence()
        if settled:
            return settled
        deadlines = []
        for request in self._requests:
            if request.status == RequestStatus.EXPIRED and request.deadline:
                deadlines.append(request.deadline)
        if deadlines:
            time = inbox.time_of(max(deadlines))
            return f"Time ran out at {time}; the run failed by the deadline."
        return "This was withdrawn."

    def _settled_sentence(self) -> str:
        """Return who settled the requests, and when; empty if no signature counts."""
        people: list[str] = []
        times: list[datetime] = []
        for slot in self.slots:
            # An open slot is no signature, and one for an older revision did not settle
            # it.
            if slot.at is None or not slot.counts:
                continue
            name = "you" if slot.name == "You" else slot.name
            people.append(name)
            times.append(slot.at)
        if not people:
            return ""
        return f"Settled by {' and '.join(people)} at {inbox.time_of(max(times))}."

    @property
    def cancelled(self) -> bool:
        return bool(self.run.cancel_at)

    @property
    def waits(self) -> bool:
        """Return whether people can still decide something here."""
        return not self.ending and self._has_open_request

    @property
    def signed(self) -> int:
        return sum(1 for slot in self.slots if not slot.open and slot.counts)

    @property
    def quorum(self) -> int:
        return sum(1 for slot in self.slots if slot.counts)

    @property
    def _requests(self) -> list[ApprovalRequest]:
        return [state.request for state in self.standing.values()]

    @property
    def _open_requests(self) -> list[ApprovalRequest]:
        return [
            request
            for request in self._requests
            if request.status == RequestStatus.OPEN
        ]

    @property
    def nodes(self) -> str:
        names = [inbox.name_of_node(request.node) for request in self._requests]
        return ", ".join(dict.fromkeys(names)) or self.run.at_node

    @property
    def asked_of(self) -> str:
        principals: set[str] = set()
        for request in self._requests:
            principals.update(request.reviewers_now)
        reviewers = inbox.asked_of(sorted(principals), self.user)
        # One person can sign for all requests, so the largest number decides.
        quorum = max(map(attrgetter("quorum"), self._requests), default=1)
        if quorum > 1:
            return f"{reviewers}, {quorum} different people"
        return reviewers

    @property
    def opened_at(self) -> Any:
        return min(map(attrgetter("opened_at"), self._open_requests), default=None)

    @property
    def deadline(self) -> Any:
        deadlines = map(attrgetter("deadline"), self._open_requests)
        return min(filter(None, deadlines), default=None)

    @property
    def deadlines(self) -> list[tuple[datetime, str]]:
        """The deadlines to come and what each does, without repetition, by time."""
        acts: set[tuple[datetime, str]] = set()
        for request in self._open_requests:
            if request.deadline is not None:
                acts.add((request.deadline, inbox.at_deadline(request)))
        return sorted(acts)

    @property
    def asked_too(self) -> list[TierLine]:
        """Return whom tiers of the open requests have asked too, by time."""
        return asked_too(self._open_requests, self.user)

    @property
    def next_tiers(self) -> list[TierLine]:
        """Return what the next tiers of the open requests do, by time."""
        return next_tiers(self._open_requests, self.user)

    @property
    def silence_approves(self) -> bool:
        return any(map(inbox.silence_approves, self._open_requests))

    @property
    def run_url(self) -> str:
        return reverse("run", args=[self.run.id])

    @property
    def sprite(self) -> str:
        return static("countersign/img/sprite.svg")


def rendered(request: HttpRequest, shown: Review, *, status: int = 200) -> HttpResponse:
    """Return the page of a review, with the comments on its requests."""
    number = read_number(request.GET.get("comments", "")) or 1
    principals = permissions.principals_shown(request.user)
    # The frame of the page needs a statement in any case.
    rows = read_together(
        **comment_queries(shown.run, page=number), **bar_queries(principals)
    )
    if number > 1 and not rows["comments"]:
        # An address past the end shows the newest, as if it named no page.
        number = 1
        rows.update(read_together(**comment_queries(shown.run)))
    talk = comment_box(shown.run, shown.requests, rows, page=number)
    return render(
        request,
        "approvals/review.html",
        {"page": shown, "talk": talk, "bar": bar_in(rows)},
        section="reviews",
        status=status,
    )
