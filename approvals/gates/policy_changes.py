"""The differences between the policy that a request was opened under and another one, in
words.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from checkpoints.core.visible_json import json_text
from orchestrator.engine.graphs.tiers import tiers_in_words

_WORDS = {
    "reviewers": "reviewers",
    "quorum": "signatures needed",
    "reject_quorum": "rejections needed",
    "four_eyes": "four eyes",
    "all_or_nothing": "all or nothing",
    "shows": "what a signature is bound to",
    "reason_required": "channels whose rejection needs a reason",
    "needs": "writes that need others",
    "on_deadline": "at the deadline",
    "confirm": "who signs confirms by",
    "confirm_above": "from which amount on",
    "confirm_money": "amounts that are compared",
    "considered": "who signs looks first",
    "exclusive": "who has taken it keeps others out",
    "claim_seconds": "seconds for which it stays taken",
    "tiers": "while nobody has decided",
    "skip": "a call may be skipped",
    "auto": "signs by itself",
    "standing": "standing policies may sign",
    "auto_after": "seconds before it signs by itself",
    "veto": "asked last",
    "reports": "whoever asked reports what came of it",
}
"""Part of a policy -> its words. The others say how it came about, not what it asks."""


def changed_parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the parts in which two policies ask for different things."""
    return [
        part for part in _WORDS if (old.get(part) or None) != (new.get(part) or None)
    ]


def policy_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield each difference between two policies: "signatures needed: 1 became 2"."""
    for part in changed_parts(old, new):
        before = _in_words(part, old)
        after = _in_words(part, new)
        yield f"{_WORDS[part]}: {before} became {after}"


def _in_words(part: str, policy: Mapping[str, Any]) -> str:
    if part == "tiers":
        return "; ".join(tiers_in_words(policy)) or "nothing"
    value = policy.get(part)
    if isinstance(value, bool) or value is None:
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json_text(value)
