"""Migrations: functions that bring the state of a run from one version of its graph to another. Pure.

A step leads from a version to a version; a run goes by the shortest way, one step after the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.channel import LIMIT
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.errors import BROKEN, InvalidValue, PayloadTooLarge, described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.patch import PARTITIONS
from orchestrator.engine.reducer import First


@frozen
class Migration:
    """One step: `fn` takes {"scratch": {...}, "artifacts": {...}} and returns it changed, or changes it in place."""

    start: str
    end: str
    fn: Callable[[State], Any]

    @property
    def name(self) -> str:
        """The step in words."""
        return f"{self.start} to {self.end}"


def way_between(steps: Iterable[Migration], start: str, end: str) -> tuple[Migration, ...]:
    """The shortest way from one version to another, of equally short ones the one declared first; () where none is."""
    known, ways = list(steps), {start: cast(tuple[Migration, ...], ())}
    todo = [start]
    while todo and end not in ways:
        at = todo.pop(0)
        for step in known:
            if step.start == at and step.end not in ways:
                ways[step.end] = (*ways[at], step)
                todo.append(step.end)
    return ways.get(end, ())


def migrated_state(
    target: Compiled, steps: Iterable[Migration], state: Mapping[str, Mapping[str, Any]], *, limit: int | None = LIMIT
) -> State:
    """The state after these steps, each value of its channel's type in the target; new channels that no step sets are
    at their defaults. Without steps: the state with the channels that are new.

    Raises `InvalidValue`, naming the step that failed, or the channel that does not fit, is lost or is unknown.
    """
    before = {part: {**state[part]} for part in PARTITIONS}
    after, steps = before, list(steps)
    for step in steps:
        after = _stepped(step, after)
    fresh = target.fresh_state()
    _refuse_unfit_names(target, before, after)
    if not steps:
        return {part: {**fresh[part], **after[part]} for part in PARTITIONS}
    return {part: {**fresh[part], **_staged(target, after[part], limit)} for part in PARTITIONS}


def misread_channels(
    target: Compiled,
    steps: Sequence[Migration],
    state: State,
    waiting: Iterable[tuple[str, Json]],
    *,
    limit: int | None = LIMIT,
) -> list[str]:
    """Of values that wait to be written, each with its channel, the channels where the target would take them for
    something else than they are: the steps change what the channel has, or would change such a value if it were there.
    A migration sees the state and not what waits, so nobody else can tell. Raises as `migrated_state`.
    """
    held: dict[str, dict[bytes, Json]] = {}
    for name, value in waiting:
        if name in target.channels and name in state[target.channels[name].partition]:
            held.setdefault(name, {})[canonical.encode(value)] = value
    if not steps or not held:
        return []
    found = _otherwise(target, migrated_state(target, steps, state, limit=limit), _of_state(target, state, held))
    left = {name: list(values.values()) for name, values in held.items() if name not in found}
    while left:
        laid = {name: values.pop() for name, values in left.items()}
        there = {part: {**v, **{n: laid[n] for n in v if n in laid}} for part, v in state.items()}
        try:
            found |= _otherwise(target, migrated_state(target, steps, there, limit=limit), laid)
        except (InvalidValue, PayloadTooLarge):
            found |= {*laid}  # It cannot read what waits.
        left = {name: values for name, values in left.items() if values and name not in found}
    return sorted(found)


def _of_state(target: Compiled, state: State, names: Iterable[str]) -> dict[str, Json]:
    return {name: state[target.channels[name].partition][name] for name in names}


def _otherwise(target: Compiled, after: State, before: Mapping[str, Json]) -> set[str]:
    """The channels that have another value than before."""
    now = _of_state(target, after, before)
    return {name for name in before if canonical.encode(now[name]) != canonical.encode(before[name])}


def written_firsts(
    target: Compiled,
    old: Mapping[str, Any] | None,
    written: Iterable[str],
    before: Mapping[str, Mapping[str, Any]],
    after: State,
) -> tuple[str, ...]:
    """The channels with the reducer First that hold a value once the target goes on from `after`, sorted: those that
    did before, and those to which this state gives a value that is not their default. `old` is the structure of the
    version before it.
    """
    firsts = {name for name, channel in target.channels.items() if channel.reducer == First}
    was_first = {name for name, one in (old or {"channels": {}})["channels"].items() if one["reducer"] == First.name}
    earlier, fresh = {**before["scratch"], **before["artifacts"]}, target.fresh_state()
    set_now = {
        name
        for part in PARTITIONS
        for name in firsts & {*after[part]}
        if not (
            _is_same(after[part], fresh[part], name) or (name in was_first and _is_same(after[part], earlier, name))
        )
    }
    return tuple(sorted(firsts & {*written, *set_now}))


def _is_same(values: Mapping[str, Any], others: Mapping[str, Any], name: str) -> bool:
    return name in others and canonical.encode(values[name]) == canonical.encode(others[name])


def _stepped(step: Migration, state: State) -> State:
    copied = cast(State, canonical.normalised(state))
    try:
        returned = step.fn(copied)
        after = copied if returned is None else {**copied, **returned}
        after = {part: {**after.pop(part)} for part in PARTITIONS} | after
    except BROKEN as error:
        message = f"the migration from {step.name} failed: {described(error)}"
        raise InvalidValue(message, migration=step.name) from error
    if unknown := sorted(map(str, {*after} - {*PARTITIONS})):
        message = f"the migration from {step.name} gave {', '.join(unknown)}; a state has {' and '.join(PARTITIONS)}"
        raise InvalidValue(message, migration=step.name)
    return after


def _refuse_unfit_names(target: Compiled, before: State, after: State) -> None:
    """Nothing is dropped and nothing is lost without a word."""
    for part, values in after.items():
        for name in values:
            if name not in target.channels or target.channels[name].partition != part:
                message = f"{name} is no channel of {part} in version {target.version}; the migration must take it out"
                raise InvalidValue(message, channel=str(name))
    there = {name for values in after.values() for name in values}
    for name in (name for values in before.values() for name in values):
        if name in target.channels and name not in there:
            raise InvalidValue(f"the migration lost the channel {name}, which is still there", channel=name)


def _staged(target: Compiled, values: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    channels = target.channels
    return {
        name: None if value is None and channels[name].lax_none else channels[name].stage(value, limit=limit)
        for name, value in values.items()
    }
