"""Standing policies: a person allows a gate to sign by itself what stays within their
limits, until a day. Pure: what a gate permits of that, and whether a value is within
limits.

A gate declares that it permits them, a request carries that in its policy.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from orchestrator.engine.graphs.gate import Gate, value_at
from orchestrator.engine.graphs.limit import WHOLE, number_of
from orchestrator.engine.values.canonical import Json


def faults_of_standing(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with a gate that permits standing policies, or with what stands
    beside that.
    """
    if not isinstance(gate.standing, bool):
        yield f"standing must be True or False, not {gate.standing!r}"
        return
    if not gate.standing:
        return
    if gate.auto is not None:
        yield (
            "standing=True and auto= would both sign by themselves, and count as one; "
            "keep one of them"
        )
    if gate.four_eyes and gate.quorum == 1:
        yield (
            "standing=True would let a policy sign alone where four_eyes=True asks for a "
            "person who did not shape the content; with quorum=2 a person signs beside it"
        )
    if gate.confirm is not None and gate.confirm_above is None:
        yield (
            "a standing policy signs nothing that a person must confirm, and confirm= "
            "asks for that always; say above which amount, as confirm_above=500"
        )
    if gate.considered is not None:
        yield "a standing policy looks at nothing, and considered= asks for that"
    if gate.exclusive:
        yield (
            "a standing policy would sign what exclusive=True keeps for who has taken "
            "the review"
        )


def standing_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of standing policies, as its structure and the policies of
    its requests have it: {standing: True}; nothing where it permits none.
    """
    # A gate without it is hashed as before there was any.
    return {"standing": True} if gate.standing else {}


def signs_by_itself(policy: Mapping[str, Json]) -> bool:
    """Return whether something may sign under a request's policy that is no person: the
    automatic policy of its gate, or a standing policy.
    """
    return "auto" in policy or bool(policy.get("standing"))


def reason_against(
    limits: Mapping[str, Mapping[str, str]], channel: str, value: Json
) -> str:
    """Return why a value for a channel is not within the limits of a standing policy;
    empty if it is. `limits`: {channel: {path: the highest number}}; a channel without
    paths has no limit, and one that is not there is left to people. A value without a
    number at a path, or with one below 0, is within none.
    """
    if channel not in limits:
        return f"it signs nothing for {channel}"
    for path, highest in limits[channel].items():
        number = _number_at(value, path)
        if number is None:
            return f"there is no number at {path}"
        if number < 0:
            return f"{path} is below 0"
        most = number_of(highest)
        if most is None or number > most:
            return f"{path} is more than {highest}"
    return ""


def _number_at(value: Json, path: str) -> Decimal | None:
    """Return the number at a path, amounts as text too; None if there is none."""
    is_field: Any = isinstance(value, dict) and WHOLE in value
    # As in a label, `value` is the whole of what has no field of that name.
    if path == WHOLE and not is_field:
        return number_of(value)
    return number_of(value_at(value, path, []))
