"""The tiers of the requests of a review, as its page shows them: who was asked too, and
what comes next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals.models import ApprovalRequest
from approvals.silence.tiers import escalations
from approvals.views.inbox import asked_of
from orchestrator.engine.graphs.tiers import ESCALATE, tiers_in


@dataclass(frozen=True, slots=True)
class TierLine:
    """A tier in words, and when it acted or is to act."""

    at: datetime
    words: str


def asked_too(requests: Sequence[ApprovalRequest], user: Any) -> list[TierLine]:
    """Return whom tiers of these requests have asked too, each once, by time."""
    lines: dict[str, TierLine] = {}
    for request in requests:
        for at, principals in escalations(request):
            words = asked_of(principals, user)
            if words not in lines or at < lines[words].at:
                lines[words] = TierLine(at, words)
    return sorted(lines.values(), key=_time_of)


def next_tiers(requests: Sequence[ApprovalRequest], user: Any) -> list[TierLine]:
    """Return what the next tiers of these requests do, by time."""
    lines: set[TierLine] = set()
    for request in requests:
        if request.tier_at is not None:
            lines.add(TierLine(request.tier_at, _words_of_next(request, user)))
    return sorted(lines, key=_time_of)


def _words_of_next(request: ApprovalRequest, user: Any) -> str:
    tier = tiers_in(request.policy)[len(request.passed_tiers or ())]
    if tier["to"] is None:
        return "a reminder goes to those who may decide"
    named = asked_of(tier["to"], user)
    if tier["act"] == ESCALATE:
        return f"{named} may decide too"
    return f"a reminder goes to {named}"


def _time_of(line: TierLine) -> datetime:
    return line.at
