"""The question that a gate asked before, in words for one reader: who decided it, and
what came of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from approvals.models import Decision
from approvals.results.earlier_askings import EarlierAsking, EffectEnding
from approvals.results.effect_results import NOT_YET
from approvals.views.inbox import name_of_decider, time_of

DECIDED = {
    "approved": "approved",
    "rejected": "rejected",
    "skipped": "skipped",
    "partial": "decided",
}
"""What people did, by the outcome of their request."""


@dataclass(frozen=True, slots=True)
class AskedBefore:
    """The note on a question that is not the first of its gate: who decided the last
    one, and a sentence for each effect that followed.
    """

    decided: str
    endings: list[str]
    is_bad: bool


def asked_before(asking: EarlierAsking | None, reader: Any) -> AskedBefore:
    """Return the note on what was asked before, for this reader; for None that it was
    asked, and nothing else.
    """
    if asking is None:
        return AskedBefore("", [], is_bad=False)
    did = DECIDED.get(asking.request.outcome, "decided")
    names = _names(asking.decisions, reader)
    decided = f"{names} {did} it"
    if asking.request.settled_at is not None:
        decided += f" at {time_of(asking.request.settled_at)}"
    return AskedBefore(
        f"{decided}.",
        [
            ending_in_words(ending)
            for ending in asking.endings
            if ending.result.status != NOT_YET
        ],
        any(ending.is_bad for ending in asking.endings),
    )


def ending_in_words(ending: EffectEnding) -> str:
    """Return what came of one node: "pay: failed (the bank refused it)"."""
    words = ending.result.sentence
    if not ending.is_sound:
        return f"{ending.result.node}: what the journal says of it does not verify"
    return f"{words} ({ending.error})" if ending.error else words


def _names(decisions: Iterable[Decision], reader: Any) -> str:
    """Return who decided; the reader first, as "you"."""
    names: list[str] = []
    for decision in decisions:
        if decision.by_id is not None and decision.by_id == reader.pk:
            names.insert(0, "You")
        else:
            names.append(name_of_decider(decision))
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return names[0] if names else "Nobody"
