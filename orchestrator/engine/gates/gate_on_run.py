"""The gate of one run: what its terms say instead of what it declares. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import checked_principals
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.gate import LONGEST_DEADLINE, TERMS, Fact, Gate
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.numbers import is_whole

MOST_SIGNATURES = 100
"""The most signatures or rejections that terms may ask for."""
LAST_MOMENT = datetime(2099, 12, 31, tzinfo=UTC)
"""The last moment that terms may name as a deadline."""
SOON = timedelta(seconds=1)
"""After how long a request is due that is opened when its deadline has passed."""


@frozen
class DueAt:
    """The function of a gate whose deadline is this moment."""

    moment: datetime

    def __call__(self, now: datetime, state: Any) -> datetime:
        # The run may have waited for a worker past it; then it is due at once.
        return max(self.moment, now + SOON)


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
    faults = list(_faults_of(compiled, gate, options))
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
        declared["deadline"] = DueAt(moment)
    # Without a deadline nothing is said of what it would do.
    if "deadline" in declared and moment is None:
        declared["on_deadline"] = "reject"
    return declared


def _faults_of(
    compiled: Compiled, gate: Gate, options: Mapping[str, Any]
) -> Iterator[str]:
    for name in options:
        if name not in TERMS:
            yield f"{name} is none of {', '.join(TERMS)}"
    yield from _faults_of_quorums(options)
    for name in ("four_eyes", "all_or_nothing", "reports"):
        if not isinstance(options.get(name, False), bool):
            yield f"{name} must be True or False"
    # Silence approves nothing that was not examined when the graph was registered.
    if options.get("on_deadline", "reject") not in ("reject", "fail"):
        yield "on_deadline must be 'reject' or 'fail'"
    if not _is_deadline(options.get("deadline")):
        yield (
            "deadline must be a time ahead, a moment with a time zone before the year "
            f"{LAST_MOMENT.year + 1}, or None"
        )
    if "reviewers" in options:
        yield from _faults_of_reviewers(options["reviewers"])
    yield from _faults_of_facts(compiled, gate, options.get("facts", ()))


def _faults_of_quorums(options: Mapping[str, Any]) -> Iterator[str]:
    for name in ("quorum", "reject_quorum"):
        number = options.get(name, 1)
        if not is_whole(number) or number > MOST_SIGNATURES:
            yield f"{name} must be a whole number from 1 to {MOST_SIGNATURES}"


def _faults_of_reviewers(reviewers: Any) -> Iterator[str]:
    # A function of the state would let a patch decide whom the gate asks.
    if not isinstance(reviewers, list | tuple | set | frozenset):
        yield "reviewers must be a list of user:<name>, group:<name> or perm:<app.codename>"
        return
    try:
        checked_principals(reviewers)
    except InvalidValue as error:
        yield error.message


def _faults_of_facts(compiled: Compiled, gate: Gate, facts: Any) -> Iterator[str]:
    """Yield the faults of facts: a fact that reads an unbound channel could change
    under a signature, and is seen only when the request opens.
    """
    is_list = isinstance(facts, list | tuple)
    if not is_list or not all(isinstance(fact, Fact) for fact in facts):
        yield "facts must be a list of Fact"
        return
    bound = {*gate.shows, *gate.writes}
    for fact in facts:
        if not _leads(compiled, bound, str(fact.path)):
            yield (
                f"the fact {fact.label!r} reads {fact.path}, which is no field of the "
                "input, no proposal, and no channel in the writes or shows of the gate"
            )


def _leads(compiled: Compiled, bound: Collection[str], path: str) -> bool:
    """Return whether a path of a fact leads to something to which signatures are
    bound.
    """
    source, _, rest = path.replace("[", ".").partition(".")
    name = rest.partition(".")[0]
    if source == "input":
        return _is_of_input(compiled, name)
    if source == "state":
        return name in bound
    if source in compiled.channels:
        return source in bound
    return source in ("args", "node", "proposal") or _is_of_input(compiled, source)


def _is_of_input(compiled: Compiled, name: str) -> bool:
    model = compiled.input_model
    is_open = model.model_config.get("extra") == "allow"
    return is_open or name in model.model_fields


def _is_deadline(value: Any) -> bool:
    if isinstance(value, timedelta):
        return timedelta(0) < value <= LONGEST_DEADLINE
    if isinstance(value, datetime):
        return value.utcoffset() is not None and value <= LAST_MOMENT
    return value is None
