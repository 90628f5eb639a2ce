"""What differs between two gates, and whether a change makes it easier to pass. Pure; on structures."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.engine.frozen import frozen

_LISTS = {"shows": "what a signature is bound to", "writes": "the channels that it guards"}


@frozen
class GateChange:
    """One change in words. `weaker`: it lets something through that the gate would have held."""

    said: str
    weaker: bool


def gate_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[GateChange]:
    """How the gate of a node (as a structure tells the node) became another."""
    before, after = old["gate"], new["gate"]
    found: list[GateChange] = []
    if before and not after:
        return [GateChange("was removed", weaker=True)]
    if after and not before:
        found.append(GateChange("is new", weaker=False))
    if old["approve"] != new["approve"] and (before or not after):
        said = f"people decide on {old['approve'] or 'nothing'} became {new['approve'] or 'nothing'}"
        found.append(GateChange(said, weaker=True))
    return [*found, *_of_policy(before, after)] if before and after else found


def asks_as_much(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether both nodes have gates, and the new one lets nothing through that the old one would have held; of the
    channels that each declares apart.
    """
    if not old or not new or not old["gate"] or not new["gate"]:
        return False
    alike = [{**node, "gate": {**node["gate"], "writes": []}} for node in (old, new)]
    return not any(change.weaker for change in gate_changes(*alike))


def _of_policy(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[GateChange]:
    if old["reviewers"] != new["reviewers"]:
        yield _of_reviewers(old["reviewers"], new["reviewers"])
    for key, words, easier in (("quorum", "quorum", -1), ("reject_quorum", "rejections needed", 1)):
        if old[key] != new[key]:
            yield GateChange(f"{words} {old[key]} became {new[key]}", weaker=(new[key] - old[key]) * easier > 0)
    for key, words in (("four_eyes", "four eyes"), ("all_or_nothing", "all or nothing")):
        if old[key] != new[key]:
            yield GateChange(f"{words} {_yes(old[key])} became {_yes(new[key])}", weaker=old[key])
    if old["needs_approval"] != new["needs_approval"]:
        rules = [gate["needs_approval"] or "always" for gate in (old, new)]
        yield GateChange(f"whether people are asked: {rules[0]} became {rules[1]}", weaker=bool(new["needs_approval"]))
    for key, words in (*_LISTS.items(), ("reason_required", "channels whose rejection needs a reason")):
        if old[key] != new[key]:
            yield GateChange(
                f"{words}: {_named(old[key])} became {_named(new[key])}", weaker=not _within(old, new, key)
            )


def _of_reviewers(old: Any, new: Any) -> GateChange:
    """Fewer of the same people are no easier to get a signature from; others, or a function, may be."""
    fewer = isinstance(old, list) and isinstance(new, list) and {*new} <= {*old}
    return GateChange(f"reviewers {_named(old)} became {_named(new)}", weaker=not fewer)


def _within(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> bool:
    return {*old[key]} <= {*new[key]}


def _named(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "nobody" if value is None else f"the function {value}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
