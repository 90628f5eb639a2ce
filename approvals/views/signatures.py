"""The signature slots of a review: who signed, whose signature counts, who is still needed. No queries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState
from approvals.models import Decision, RequestStatus
from approvals.views.inbox import asked_of, name_of


@dataclass(frozen=True, slots=True)
class Slot:
    """One needed signature, or one that somebody gave. `counts`: for a write as it stands."""

    name: str
    text: str
    at: datetime | None = None
    counts: bool = True

    @property
    def open(self) -> bool:
        return self.at is None


def slots(asked: Mapping[UUID, RequestState], decisions: Iterable[Decision], user: Any, may_sign: bool) -> list[Slot]:
    """Who signed, and what is still open: one slot a person, and one for each signature that is lacking."""
    per_person: dict[Any, list[Decision]] = {}
    for decision in decisions:
        per_person.setdefault(decision.by_id, []).append(decision)
    counting = {by for one in asked.values() for standing in one.standings.values() for by in standing.by}
    found = [_signed_slot(given, user, given[0].by_id in counting) for given in per_person.values()]
    lacking = max((_lacking(one) for one in asked.values()), default=0)
    for number in range(lacking):
        own = may_sign and number == 0 and _may_still_sign(asked, user)
        names = {p for one in asked.values() for p in one.request.policy["reviewers"]}
        others = Slot("Somebody else", f"May sign: {asked_of(sorted(names), user)}.")
        more = "For the writes that are left." if user.pk in per_person else ""
        found.append(Slot("You", more) if own else others)
    return found


def _may_still_sign(asked: Mapping[UUID, RequestState], user: Any) -> bool:
    """Whether a write is open that this person has not signed."""
    standings = (standing for one in asked.values() for standing in one.standings.values())
    return any(not standing.settled and user.pk not in standing.by for standing in standings)


def _signed_slot(given: list[Decision], user: Any, counts: bool) -> Slot:
    more = "" if counts else " It does not count for what is asked now."
    return Slot(_person(given[0], user), _summary(given) + more, max(d.at for d in given), counts)


def _lacking(asked: RequestState) -> int:
    """How many signatures the least signed of the open writes still needs."""
    if asked.request.status != RequestStatus.OPEN:
        return 0
    still = [asked.request.quorum - len(s.by) for s in asked.standings.values() if not s.settled]
    return max(still, default=0)


def _person(decision: Decision, user: Any) -> str:
    if decision.by is None:
        return "The system"
    return "You" if decision.by_id == user.pk else name_of(decision.by)


def _summary(given: list[Decision]) -> str:
    counts = {word: sum(1 for d in given if d.verdict == word) for word in ("approve", "edit", "reject")}
    words = {"approve": "approved", "edit": "edited", "reject": "rejected"}
    return ", ".join(f"{words[word]} {count}" for word, count in counts.items() if count).capitalize() + "."
