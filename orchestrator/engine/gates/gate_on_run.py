"""The gate of one run: what its terms say, put in the place of what it declares. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, Fact, Gate
from orchestrator.engine.graphs.terms import TERMS
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.numbers import is_whole

SOON = timedelta(seconds=1)
"""After how long a request is due that is opened when its deadline has passed."""


def gate_on_run(compiled: Compiled, gate: Gate, input: Json) -> Gate:
    """Return the gate with what its terms say on this input, and without terms; the
    gate itself if it has none. Raises `InvalidValue` if they fail or say what no gate
    can ask for.
    """
    if gate.terms is None:
        return gate
    try:
        options: Any = gate.terms(compiled.input_for(input))
    except BROKEN as error:
        raise InvalidValue(f"the terms of a gate failed: {described(error)}") from error
    if not isinstance(options, Mapping):
        raise InvalidValue("the terms of a gate must be a dict of options")
    faults = list(_faults_of(options))
    if faults:
        raise InvalidValue(f"the terms of a gate are wrong: {'; '.join(faults)}")
    return replace(gate, terms=None, **_as_declared(options))


def asks_four_eyes(compiled: Compiled, read_input: Callable[[], Json]) -> bool:
    """Return whether a gate of a run asks for four eyes, or might: nobody knows where
    its terms, or `read_input`, fail. The input is read only for gates with terms.
    """
    for node in compiled.nodes.values():
        gate = node.gate
        if gate is None:
            continue
        try:
            if gate.terms is not None:
                gate = gate_on_run(compiled, gate, read_input())
        except InvalidValue:
            return True
        if gate.four_eyes:
            return True
    return False


def _as_declared(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in the form in which a gate declares them."""
    declared = dict(options)
    moment = declared.get("deadline")
    if isinstance(moment, datetime):
        declared["deadline"] = _due_at(moment)
    # Without a deadline nothing is said of what it would do.
    if "deadline" in declared and moment is None:
        declared["on_deadline"] = "reject"
    return declared


def _due_at(moment: datetime) -> Any:
    """Return the function of a gate whose deadline is this moment."""

    def deadline(now: datetime, state: Any) -> datetime:
        # The run may have waited for a worker past it; then it is due at once.
        return max(moment, now + SOON)

    return deadline


def _faults_of(options: Mapping[str, Any]) -> Iterator[str]:
    for name in options:
        if name not in TERMS:
            yield f"{name} is none of {', '.join(TERMS)}"
    for name in ("quorum", "reject_quorum"):
        if not is_whole(options.get(name, 1)):
            yield f"{name} must be a whole number from 1"
    for name in ("four_eyes", "all_or_nothing"):
        if not isinstance(options.get(name, False), bool):
            yield f"{name} must be True or False"
    # Silence approves nothing that was not examined when the graph was registered.
    if options.get("on_deadline", "reject") not in ("reject", "fail"):
        yield "on_deadline must be 'reject' or 'fail'"
    if not _is_deadline(options.get("deadline")):
        yield "deadline must be a time ahead, a moment with a time zone, or None"
    facts = options.get("facts", ())
    is_list = isinstance(facts, list | tuple)
    if not is_list or not all(isinstance(fact, Fact) for fact in facts):
        yield "facts must be a list of Fact"


def _is_deadline(value: Any) -> bool:
    if isinstance(value, timedelta):
        return timedelta(0) < value <= LONGEST_DEADLINE
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    return value is None
