"""The signature slots of a review: who signed, whose signature counts, and how many are
still needed. It makes no queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState
from approvals.models import Decision, RequestStatus
from approvals.views.inbox import asked_of, name_of

VERBS = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "skip": "skipped",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A signature that is needed, or one that a person gave; or what the deadline
    decided (`deadline_did`: "approved" or "rejected"), which is not a signature.
    `counts`: for a write in its newest revision.
    """

    name: str
    text: str
    at: datetime | None = None
    counts: bool = True
    deadline_did: str = ""
    by_policy: bool = False

    @property
    def by_deadline(self) -> bool:
        return bool(self.deadline_did)

    @property
    def open(self) -> bool:
        return self.at is None


def slots(
    states: Mapping[UUID, RequestState],
    decisions: Iterable[Decision],
    user: Any,
    may_sign: bool,
) -> list[Slot]:
    """Return a slot for each person who signed, and one for each signature that is
    lacking.
    """
    by_person: dict[Any, list[Decision]] = {}
    for decision in decisions:
        by_person.setdefault(decision.voter, []).append(decision)
    # A signature for an older revision is listed, but counts no more.
    counting = _people_who_count(states)
    signed = [
        _signed_slot(own, user, counts=person in counting)
        for person, own in by_person.items()
    ]
    # The request that lacks most decides; one person can sign for all of them.
    lacking = max(map(_lacking, states.values()), default=0)
    if lacking <= 0:
        return signed

    others = Slot("Somebody else", f"May sign: {asked_of(_reviewers(states), user)}.")
    open_slots = [others] * lacking
    # One of the lacking signatures can be this person's own.
    if may_sign and _may_still_sign(states, user):
        has_signed = user.pk in by_person
        text = "For the writes that are left." if has_signed else ""
        open_slots[0] = Slot("You", text)
    return signed + open_slots


def _people_who_count(states: Mapping[UUID, RequestState]) -> set[int | None]:
    """Return the accounts whose signature counts for some write."""
    people: set[int | None] = set()
    for state in states.values():
        for standing in state.standings.values():
            people.update(standing.by)
    return people


def _reviewers(states: Mapping[UUID, RequestState]) -> list[str]:
    principals: set[str] = set()
    for state in states.values():
        principals.update(state.request.reviewers_now)
    return sorted(principals)


def _may_still_sign(states: Mapping[UUID, RequestState], user: Any) -> bool:
    """Return whether a write is open that this person has not signed."""
    for state in states.values():
        for standing in state.standings.values():
            has_signed = user.pk in standing.by and not standing.vetoed
            if not standing.settled and not has_signed:
                return True
    return False


def _signed_slot(decisions: Sequence[Decision], user: Any, *, counts: bool) -> Slot:
    text = _summary(decisions)
    if decisions[0].by_deadline:
        at = max(decision.at for decision in decisions)
        did = VERBS[decisions[0].verdict]
        return Slot("The deadline", text, at, counts=False, deadline_did=did)
    if decisions[0].by_policy:
        at = max(decision.at for decision in decisions)
        # Several standing policies count as one signer.
        name = " and ".join(dict.fromkeys(row.signer_name for row in decisions))
        return Slot(name[:1].upper() + name[1:], text, at, counts, by_policy=True)
    if not counts:
        text += " It does not count for what is asked now."
    at = max(decision.at for decision in decisions)
    return Slot(_person(decisions[0], user), text, at, counts)


def _lacking(state: RequestState) -> int:
    """Return how many signatures the least signed of the open writes still needs."""
    if state.request.status != RequestStatus.OPEN:
        return 0
    lacking = []
    for standing in state.standings.values():
        if not standing.settled:
            # After a veto one more is lacking, however many there are.
            fewest = 1 if standing.vetoed else 0
            lacking.append(max(fewest, state.request.quorum - standing.alike))
    return max(lacking, default=0)


def _person(decision: Decision, user: Any) -> str:
    if decision.by is None:
        return "The system"
    name = "You" if decision.by_id == user.pk else name_of(decision.by)
    if decision.delegator_name:
        return f"{name}, for {decision.delegator_name}"
    return name


def _summary(decisions: Sequence[Decision]) -> str:
    """Return how many writes a person approved, edited and rejected."""
    verdicts = [decision.verdict for decision in decisions]
    parts = []
    for verdict, did in VERBS.items():
        if verdict in verdicts:
            parts.append(f"{did} {verdicts.count(verdict)}")
    return ", ".join(parts).capitalize() + "."
