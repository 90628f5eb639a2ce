"""Automatic policies: a function of the author that may sign once for each revision of
what a gate holds, as the system, and counts as one; and the window in which only people
sign before it, or a standing policy, does. Pure.

A gate declares it, a request carries its name in its policy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.engine.errors import BROKEN, described
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, Gate
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of, takes_two

REMOVED = "the gate has no automatic policy any more"
REPLACED = "the gate has another policy now, and this was opened under {name}"


def faults_of_auto(gate: Gate) -> Iterator[str]:
    """Yield the faults of an author's automatic policy and of the options that go with
    it.
    """
    if gate.auto is None:
        return
    if not callable(gate.auto) or not takes_two(gate.auto):
        yield "auto must be a function of (state, proposal)"
    if gate.four_eyes and gate.quorum == 1:
        yield (
            "auto= would sign alone where four_eyes=True asks for a person who did not "
            "shape the content; with quorum=2 a person signs beside it"
        )
    if gate.confirm is not None and gate.confirm_above is None:
        yield (
            "auto= signs nothing that a person must confirm, and confirm= asks for that "
            "always; say above which amount, as confirm_above=500"
        )
    if gate.exclusive:
        yield "auto= would sign what exclusive=True keeps for who has taken the review"


def auto_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of its automatic policy, as its structure and the policies
    of its requests have it: {auto: name of the function}; nothing where it has none.
    """
    # A gate without it is hashed as before there was any.
    if gate.auto is None:
        return {}
    return {"auto": name_of(gate.auto)}


def reservation(
    gate: Gate | None,
    name: str,
    state: Any,
    proposal: Any,
) -> str | None:
    """Return why the automatic policy of this name does not sign; None if it does. Never
    raises: only the literal `True` signs; a text is the reason why not, and so is an
    exception.
    """
    if gate is None or gate.auto is None:
        return REMOVED
    # A deployment puts no other one under what people are asked.
    if name_of(gate.auto) != name:
        return REPLACED.format(name=name)
    try:
        answer = gate.auto(state, proposal)
    except BROKEN as error:
        return f"its policy {name} failed: {described(error)}"
    # Only the literal True: a function that returns something else signs nothing.
    if answer is True:
        return None
    if isinstance(answer, str) and answer.strip():
        return answer
    in_words = type(answer).__name__
    if answer is None or answer is False:
        in_words = str(answer)
    return f"its policy {name} said {in_words}"


def with_auto_of(gate: Gate, policy: Mapping[str, Json]) -> Gate:
    """Return a gate with its automatic policy only if that is the one that a request's
    policy names: else people alone are asked.
    """
    if gate.auto is not None and policy.get("auto") == name_of(gate.auto):
        return gate
    return replace(gate, auto=None)


# The window.


def faults_of_window(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with the window that an author wrote."""
    after: Any = gate.auto_after
    if after is None:
        return
    if gate.auto is None and gate.standing is not True:
        yield "auto_after= lets nothing wait: there is neither auto= nor standing=True"
    is_time = isinstance(after, timedelta) and after.microseconds == 0
    if not is_time or not timedelta(0) < after <= LONGEST_DEADLINE:
        yield (
            f"auto_after is {after!r}, which is no time of whole seconds, longer than 0 "
            "and at most a hundred years"
        )
        return
    if isinstance(gate.deadline, timedelta) and after >= gate.deadline:
        yield f"auto_after is {after}, which is not before the deadline"


def window_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of its window, as its structure and the policies of its
    requests have it: {auto_after: seconds}; nothing where it has none.
    """
    # A gate without it is hashed as before there was any.
    if gate.auto_after is None:
        return {}
    return {"auto_after": int(gate.auto_after.total_seconds())}


def window_by(policy: Mapping[str, Json]) -> timedelta | None:
    """Return the window of a request's policy; None where it has none."""
    seconds = policy.get("auto_after")
    return None if seconds is None else timedelta(seconds=seconds)


def window_end(policy: Mapping[str, Json], staged_at: datetime) -> datetime | None:
    """Return when the window of a revision ends that was staged then; None without one."""
    window = window_by(policy)
    if window is None:
        return None
    try:
        return staged_at + window
    except OverflowError:
        # A bundle may bring a moment near the end of all times.
        return datetime.max.replace(tzinfo=UTC)
