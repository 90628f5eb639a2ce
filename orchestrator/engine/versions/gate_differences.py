"""The differences between two gates, and whether a change makes the gate easier to
pass. Pure; on structures.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.confirmation import is_weaker
from orchestrator.engine.graphs.consideration import (
    asks_for_less,
    consideration_in_words,
)
from orchestrator.engine.graphs.standing_policy import signs_by_itself

_LISTS = {
    "shows": "what a signature is bound to",
    "writes": "the channels that it guards",
    "reason_required": "channels whose rejection needs a reason",
}
_SWITCHES = {
    "four_eyes": "four eyes",
    "all_or_nothing": "all or nothing",
}


@frozen
class GateChange:
    """One change in words. `weaker`: something passes that the gate would have held."""

    words: str
    weaker: bool


def gate_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[GateChange]:
    """Return the changes of a node's gate between two structures of the node."""
    before = old["gate"]
    after = new["gate"]
    if before and not after:
        return [GateChange("was removed", weaker=True)]
    changes: list[GateChange] = []
    if after and not before:
        changes.append(GateChange("is new", weaker=False))
    elif old["approve"] != new["approve"]:
        # Before a gate that is new, there was nothing for people to decide on.
        before_words = old["approve"] or "nothing"
        after_words = new["approve"] or "nothing"
        words = f"people decide on {before_words} became {after_words}"
        changes.append(GateChange(words, weaker=True))
    if before and after:
        changes += _policy_changes(before, after)
    return changes


def asks_as_much(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Return whether both nodes have gates, and the new one holds all that the old one
    would have held. The channels that each declares are disregarded.
    """
    if not old or not new or not old["gate"] or not new["gate"]:
        return False
    changes = gate_changes(_without_writes(old), _without_writes(new))
    return not any(change.weaker for change in changes)


def _without_writes(node: Mapping[str, Any]) -> dict[str, Any]:
    return {**node, "gate": {**node["gate"], "writes": []}}


def _policy_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    if old["reviewers"] != new["reviewers"]:
        yield _reviewers_change(old["reviewers"], new["reviewers"])
    yield from _quorum_changes(old, new)
    for key, words in _SWITCHES.items():
        if old[key] != new[key]:
            yield GateChange(
                f"{words} {_yes(old[key])} became {_yes(new[key])}", weaker=old[key]
            )
    if old["needs_approval"] != new["needs_approval"]:
        before = old["needs_approval"] or "always"
        after = new["needs_approval"] or "always"
        # A rule may answer that nobody needs to be asked, and no two can be compared.
        yield GateChange(
            f"whether people are asked: {before} became {after}",
            weaker=bool(new["needs_approval"]),
        )
    yield from _deadline_changes(old, new)
    yield from _confirmation_changes(old, new)
    yield from _consideration_changes(old, new)
    yield from _veto_changes(old, new)
    yield from _terms_changes(old, new)
    yield from _auto_changes(old, new)
    yield from _standing_changes(old, new)
    yield from _window_changes(old, new)
    yield from _escalation_changes(old, new)
    yield from _skip_changes(old.get("skip", False), new.get("skip", False))
    yield from _needs_changes(old.get("needs", {}), new.get("needs", {}))
    yield from _limit_changes(old.get("limits", {}), new.get("limits", {}))
    for key, words in _LISTS.items():
        if old[key] != new[key]:
            yield GateChange(
                f"{words}: {_in_words(old[key])} became {_in_words(new[key])}",
                weaker=not set(old[key]) <= set(new[key]),
            )


def _skip_changes(old: bool, new: bool) -> Iterator[GateChange]:
    if old != new:
        # After a skip the run continues without what the gate asked about.
        yield GateChange(
            f"a call may be skipped {_yes(old)} became {_yes(new)}", weaker=new
        )


def _needs_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    for channel in sorted({*old, *new}):
        before = old.get(channel, [])
        after = new.get(channel, [])
        if before != after:
            # What is needed no longer may be rejected, and the write applied.
            yield GateChange(
                f"what {channel} needs: {_in_words(before)} became {_in_words(after)}",
                weaker=not set(before) <= set(after),
            )


def _limit_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    for channel in sorted({*old, *new}):
        before = old.get(channel, {})
        after = new.get(channel, {})
        for path in sorted({*before, *after}):
            if before.get(path) == after.get(path):
                continue
            # Two bounds cannot be compared: each may be a template.
            yield GateChange(
                f"the limit of {channel}.{path} is another",
                weaker=path in before,
            )


def _quorum_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    if old["quorum"] != new["quorum"]:
        yield GateChange(
            f"quorum {old['quorum']} became {new['quorum']}",
            weaker=new["quorum"] < old["quorum"],
        )
    # The more rejections are needed, the less a single one can stop.
    if old["reject_quorum"] != new["reject_quorum"]:
        yield GateChange(
            f"rejections needed {old['reject_quorum']} became {new['reject_quorum']}",
            weaker=new["reject_quorum"] > old["reject_quorum"],
        )


def _deadline_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    # A gate without a deadline names no verdict of one.
    before = old.get("on_deadline")
    after = new.get("on_deadline")
    if before != after:
        yield GateChange(
            f"at the deadline: {before or 'none'} became {after or 'none'}",
            # Only `approve` passes something that nobody signed.
            weaker=after == "approve",
        )


def _confirmation_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = _confirmation_in_words(old)
    after = _confirmation_in_words(new)
    if before != after:
        yield GateChange(
            f"who signs confirms by: {before} became {after}",
            weaker=is_weaker(old, new),
        )


def _confirmation_in_words(gate: Mapping[str, Any]) -> str:
    method = gate.get("confirm")
    if not method:
        return "nothing"
    limit = gate.get("confirm_above")
    return method if limit is None else f"{method} above {limit}"


def _consideration_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = consideration_in_words(old)
    after = consideration_in_words(new)
    if before != after:
        yield GateChange(
            f"who signs looks first: {before or 'no'} became {after or 'no'}",
            weaker=asks_for_less(old, new),
        )


def _veto_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = old.get("veto")
    after = new.get("veto")
    if before != after:
        yield GateChange(
            f"its veto: {before or 'none'} became {after or 'none'}",
            # Nobody can say which of two functions is stricter.
            weaker=before is not None,
        )


def _terms_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = old.get("terms")
    after = new.get("terms")
    if before != after:
        # Nobody can say which of two functions asks for less.
        words = f"its terms: {before or 'none'} became {after or 'none'}"
        yield GateChange(words, weaker=True)


def _auto_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = old.get("auto")
    after = new.get("auto")
    if before != after:
        yield GateChange(
            f"its policy: {before or 'none'} became {after or 'none'}",
            # Of two functions nobody can say which signs more.
            weaker=after is not None,
        )


def _standing_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = bool(old.get("standing"))
    after = bool(new.get("standing"))
    if before != after:
        what = "may" if after else "may not"
        yield GateChange(f"standing policies {what} sign at it now", weaker=after)


def _window_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = old.get("auto_after", 0)
    after = new.get("auto_after", 0)
    if before != after:
        yield GateChange(
            f"seconds before it signs by itself: {before} became {after}",
            # Without automatic signatures, nobody has to wait for one.
            weaker=after < before and signs_by_itself(new),
        )


def _escalation_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[GateChange]:
    before = old.get("escalates", [])
    after = new.get("escalates", [])
    if before != after:
        yield GateChange(
            f"asked too in time: {_in_words(before)} became {_in_words(after)}",
            weaker=not set(after) <= set(before),
        )


def _reviewers_change(old: Any, new: Any) -> GateChange:
    """Return the change of reviewers. A signature is no easier to get from fewer of the
    same people; from others, or from those of a function, it may be.
    """
    is_narrower = False
    if isinstance(old, list) and isinstance(new, list):
        is_narrower = set(new) <= set(old)
    words = f"reviewers {_in_words(old)} became {_in_words(new)}"
    return GateChange(words, weaker=not is_narrower)


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if value is None:
        return "nobody"
    return f"the function {value}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
