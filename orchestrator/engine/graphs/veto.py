"""Vetoes: a function of the author that is asked last, when what a gate holds would
count as approved. Pure.

A gate declares it, a request carries its name in its policy.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.engine.errors import BROKEN, described
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of, takes_two

REMOVED = (
    "the gate has no veto any more, though these people were asked under one; reject it,"
    " or install a version of the graph whose gate has a veto"
)
"""The answer of a veto that a deployment has removed: it lets nothing pass."""

REPLACED = (
    "the gate has another veto now, {now}, and these people were asked under {name};"
    " reject it, or install a version of the graph whose gate has {name}"
)
"""The answer of a veto that a deployment has replaced: likewise."""


def faults_of_veto(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with what an author wrote about a veto."""
    if gate.veto is None:
        return
    if not callable(gate.veto) or not takes_two(gate.veto):
        yield "veto must be a function of (state, proposal)"


def veto_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of its veto, as its structure and the policies of its
    requests have it: {veto: name of the function}; nothing where it has none.
    """
    # A gate without it is hashed as before there was any.
    if gate.veto is None:
        return {}
    return {"veto": name_of(gate.veto)}


def with_veto_of(gate: Gate, policy: Mapping[str, Json]) -> Gate:
    """Return a gate with the veto that a policy names, and none if it names none. Where
    the gate no longer has a veto, or has another one, a stand-in vetoes everything.
    """
    if "veto" not in policy:
        return replace(gate, veto=None)
    name = str(policy["veto"])
    if gate.veto is None:
        return replace(gate, veto=_missing_veto(name, REMOVED))
    now = name_of(gate.veto)
    if now != name:
        why = REPLACED.format(now=now, name=name)
        return replace(gate, veto=_missing_veto(name, why))
    return gate


def _missing_veto(name: str, why: str) -> Callable[[Any, Any], str]:
    """Return a stand-in for a veto that the gate no longer has."""

    def missing(state: Any, proposal: Any) -> str:
        return why

    # A request that is asked again goes on naming the veto under which it was opened.
    missing.__qualname__ = name
    return missing


def objection(gate: Gate | None, state: Any, proposal: Any) -> str | None:
    """Return why a gate's veto keeps open what would be approved; None if that may
    pass. Never raises: it may pass only on the literal `False`; a text is the reason,
    and so is an exception.
    """
    if gate is None or gate.veto is None:
        return REMOVED
    name = name_of(gate.veto)
    try:
        return _objection_in(gate.veto(state, proposal), name)
    except BROKEN as error:
        return f"its veto {name} failed: {described(error)}"


def _objection_in(answer: Any, name: str) -> str | None:
    # Only the literal False: if a function forgets to return, nothing passes.
    if answer is False:
        return None
    # Methods of `str`, for a class of the author's may override them.
    if isinstance(answer, str) and str.strip(answer):
        return str.__str__(answer)
    in_words = type(answer).__name__
    if answer is None or answer is True:
        in_words = str(answer)
    return f"its veto {name} said {in_words}"
