"""Consideration: how long a person must have had a write on the screen before they
decide it, or that they must have opened all of its request. Pure.

A gate declares it, a request carries it in its policy, and who signs is judged by that.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.values.canonical import Json

OPENED = "opened"
"""Each write of the request must have been on the screen, with nothing of it folded."""
SHORTEST_LOOK = timedelta(seconds=1)
LONGEST_LOOK = timedelta(days=1)


def faults_of_consideration(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with what an author wrote about consideration."""
    considered = gate.considered
    if considered is None or considered == OPENED:
        return
    if not isinstance(considered, timedelta):
        yield (
            f"considered={considered!r} is neither a time nor {OPENED!r}; "
            "write considered=timedelta(seconds=10)"
        )
    elif not SHORTEST_LOOK <= considered <= LONGEST_LOOK:
        yield "considered= is a time from a second to a day"
    elif considered.microseconds:
        yield "considered= is in whole seconds"


def consideration_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of consideration, as its structure and the policies of
    its requests have it: {considered: whole seconds or "opened"}; nothing where it says
    nothing.
    """
    # A gate without it is hashed as before there was any.
    if gate.considered is None:
        return {}
    if isinstance(gate.considered, timedelta):
        return {"considered": int(gate.considered.total_seconds())}
    return {"considered": gate.considered}


def considered_by(policy: Mapping[str, Json]) -> timedelta | str | None:
    """Return the option of a gate that asks for what a policy asks for."""
    considered = policy.get("considered")
    if isinstance(considered, int):
        return timedelta(seconds=considered)
    return considered


def is_consideration(value: Any) -> bool:
    """Return whether a policy may hold this: "opened", or whole seconds from 1."""
    if value == OPENED:
        return True
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and value >= 1


def asks_for_less(before: Mapping[str, Json], after: Mapping[str, Json]) -> bool:
    """Return whether the structure of one gate asks for less consideration before some
    signature than that of another.
    """
    former = before.get("considered")
    latter = after.get("considered")
    if former is None or former == latter:
        return False
    # A time and opening all of it cannot be compared.
    if not isinstance(former, int) or not isinstance(latter, int):
        return True
    return latter < former


def consideration_in_words(policy: Mapping[str, Json]) -> str:
    """Return what a structure or policy says of consideration: "10 seconds each", or
    "all of it opened"; empty where it says nothing.
    """
    considered = policy.get("considered")
    if considered is None:
        return ""
    if considered == OPENED:
        return "all of it opened"
    unit = "second" if considered == 1 else "seconds"
    return f"{considered} {unit} each"
