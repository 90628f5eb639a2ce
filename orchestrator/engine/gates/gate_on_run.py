"""The gate of one run, in which its terms replace what it declares. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, TERMS, Fact, Gate
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
    for name, value in options.items():
        if name not in _FITS:
            yield f"{name} is none of {', '.join(TERMS)}"
        elif not _FITS[name](value):
            yield f"{name} must be {_SHAPES.get(name, 'True or False')}"


def _is_list_of_facts(value: Any) -> bool:
    is_list = isinstance(value, list | tuple)
    return is_list and all(isinstance(fact, Fact) for fact in value)


def _is_deadline(value: Any) -> bool:
    if isinstance(value, timedelta):
        return timedelta(0) < value <= LONGEST_DEADLINE
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    return value is None


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_way(value: Any) -> bool:
    # Silence approves nothing that was not examined when the graph was registered.
    return value in ("reject", "fail")


def _is_any(value: Any) -> bool:
    return True


_FITS: dict[str, Callable[[Any], bool]] = {
    # Whom it asks is checked where the request opens, as for every gate.
    "reviewers": _is_any,
    "quorum": is_whole,
    "reject_quorum": is_whole,
    "four_eyes": _is_flag,
    "all_or_nothing": _is_flag,
    "deadline": _is_deadline,
    "on_deadline": _is_way,
    "facts": _is_list_of_facts,
}
"""Option -> whether a value is one that a gate can ask for."""
_SHAPES = {
    "quorum": "a whole number from 1",
    "reject_quorum": "a whole number from 1",
    "deadline": "a time ahead, a moment with a time zone, or None",
    "on_deadline": "'reject' or 'fail'",
    "facts": "a list of Fact",
}
