"""Migrations: functions that bring the state of a run from one version of its graph to
another. Pure.

A step leads from a version to a version; a run goes by the shortest way, one step after
the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from orchestrator.engine.errors import BROKEN, InvalidValue, PayloadTooLarge, described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.channel import LIMIT
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.reducer import First
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json


@frozen
class Migration:
    """One step: `fn` takes {"scratch": {...}, "artifacts": {...}} and returns it
    changed, or changes it in place.
    """

    start: str
    end: str
    fn: Callable[[State], Any]

    @property
    def name(self) -> str:
        """The step in words."""
        return f"{self.start} to {self.end}"


def way_between(
    steps: Iterable[Migration],
    start: str,
    end: str,
) -> tuple[Migration, ...]:
    """Return the shortest way from one version to another, of equally short ones the
    one declared first; () if there is none.
    """
    declared = list(steps)
    ways: dict[str, tuple[Migration, ...]] = {start: ()}
    pending = [start]
    # Breadth first, so that the first way found is a shortest one.
    while pending and end not in ways:
        version = pending.pop(0)
        for step in declared:
            if step.start == version and step.end not in ways:
                ways[step.end] = (*ways[version], step)
                pending.append(step.end)
    return ways.get(end, ())


def migrated_state(
    target: Compiled,
    steps: Iterable[Migration],
    state: Mapping[str, Mapping[str, Any]],
    *,
    limit: int | None = LIMIT,
) -> State:
    """Return the state after these steps, each value of its channel's type in the
    target; new channels that no step sets are at their defaults. Without steps: the
    state with the new channels.

    Raises `InvalidValue`, naming the step that failed, or the channel that does not
    fit, is lost or is unknown.
    """
    before = {part: dict(state[part]) for part in PARTITIONS}
    after = before
    is_migrated = False
    for step in steps:
        after = _run_step(step, after)
        is_migrated = True
    fresh = target.fresh_state()
    # Looked at even without steps: the target may lack a channel of the old version.
    _refuse_unknown_channels(target, after)
    _refuse_lost_channels(target, before, after)
    # Only what a step wrote needs to be staged again.
    if is_migrated:
        after = {part: _staged(target, after[part], limit) for part in PARTITIONS}
    return {part: {**fresh[part], **after[part]} for part in PARTITIONS}


def misread_channels(
    target: Compiled,
    steps: Sequence[Migration],
    state: State,
    waiting: Iterable[tuple[str, Json]],
    *,
    limit: int | None = LIMIT,
) -> list[str]:
    """Return the channels for which a value waits to be written that the target would
    misread, sorted. `waiting` are such values, each with its channel.

    It would if the steps change the channel's present value, or would change the
    waiting value if that were in the state. A migration sees the state and not what
    waits, so there is no other way to find out. Raises as `migrated_state`.
    """
    values_by_channel = _distinct_values(target, state, waiting)
    if not steps or not values_by_channel:
        return []
    before = _values_of(target, state, values_by_channel)
    after = migrated_state(
        target,
        steps,
        state,
        limit=limit,
    )
    misread = _changed_channels(target, before, after)

    # Lay one waiting value of each channel into the state, migrate it, and compare.
    while True:
        trial: dict[str, Json] = {}
        for name, values in values_by_channel.items():
            if values and name not in misread:
                trial[name] = values.pop()
        if not trial:
            return sorted(misread)
        try:
            after = migrated_state(
                target,
                steps,
                _laid_into(state, trial),
                limit=limit,
            )
            misread |= _changed_channels(target, trial, after)
        except (InvalidValue, PayloadTooLarge):
            # The migration cannot read what waits.
            misread.update(trial)


def _distinct_values(
    target: Compiled,
    state: State,
    waiting: Iterable[tuple[str, Json]],
) -> dict[str, list[Json]]:
    """Return the different values that wait for each channel which both versions
    have.
    """
    distinct: dict[str, dict[bytes, Json]] = {}
    for name, value in waiting:
        if name not in target.channels:
            continue
        if name in state[target.channels[name].partition]:
            distinct.setdefault(name, {})[canonical.encode(value)] = value
    return {name: list(values.values()) for name, values in distinct.items()}


def _laid_into(state: State, values: Mapping[str, Json]) -> State:
    """Return the state with these values in place of those that it has."""
    after: State = {}
    for part, before in state.items():
        after[part] = dict(before)
        for name in before:
            if name in values:
                after[part][name] = values[name]
    return after


def _values_of(
    target: Compiled,
    state: State,
    names: Iterable[str],
) -> dict[str, Json]:
    return {name: state[target.channels[name].partition][name] for name in names}


def _changed_channels(
    target: Compiled,
    before: Mapping[str, Json],
    after: State,
) -> set[str]:
    """Return the channels that have another value than before."""
    values_now = _values_of(target, after, before)
    return {name for name in before if not _is_same(values_now, before, name)}


def written_firsts(
    target: Compiled,
    old: Mapping[str, Any] | None,
    written: Iterable[str],
    before: Mapping[str, Mapping[str, Any]],
    after: State,
) -> tuple[str, ...]:
    """Return the channels with the reducer First that hold a written value once the
    target goes on from `after`, sorted.

    They are those that did before, and those to which this state gives a value that is
    not their default. `old` is the structure of the version before it.
    """
    firsts = {
        name for name, channel in target.channels.items() if channel.reducer == First
    }
    were_first = _old_firsts(old)
    earlier = {**before["scratch"], **before["artifacts"]}
    fresh = target.fresh_state()
    now_written = set(written)
    for part in PARTITIONS:
        values = after[part]
        for name in firsts.intersection(values):
            if _is_same(values, fresh[part], name):
                continue
            # `written` answers for a channel that was First before, as long as its
            # value has not changed.
            if name not in were_first or not _is_same(values, earlier, name):
                now_written.add(name)
    return tuple(sorted(firsts & now_written))


def _old_firsts(old: Mapping[str, Any] | None) -> set[str]:
    if old is None:
        return set()
    names: set[str] = set()
    for name, channel in old["channels"].items():
        if channel["reducer"] == First.name:
            names.add(name)
    return names


def _is_same(
    values: Mapping[str, Any],
    others: Mapping[str, Any],
    name: str,
) -> bool:
    """Return whether the channel has the same value in both, which the first has."""
    if name not in others:
        return False
    return canonical.encode(values[name]) == canonical.encode(others[name])


def _run_step(step: Migration, state: State) -> State:
    """Return the state after one step. Raises `InvalidValue` if the step fails, or
    returns something other than the partitions of a state.
    """
    migrated: State = {}
    # The step may change it in place, and the caller still needs what was before.
    copied = cast(State, canonical.normalised(state))
    try:
        returned = step.fn(copied)
        parts = copied if returned is None else {**copied, **returned}
        for part in PARTITIONS:
            # Within the `try`, for what the step returned may be no mapping at all.
            migrated[part] = {**parts.pop(part)}
    except BROKEN as error:
        message = f"the migration from {step.name} failed: {described(error)}"
        raise InvalidValue(message, migration=step.name) from error
    unknown = sorted(map(str, parts))
    if unknown:
        message = (
            f"the migration from {step.name} gave {', '.join(unknown)}; "
            f"a state has {' and '.join(PARTITIONS)}"
        )
        raise InvalidValue(message, migration=step.name)
    return migrated


def _refuse_unknown_channels(target: Compiled, after: State) -> None:
    """Raise `InvalidValue` for a channel that the target lacks: nothing is dropped
    silently.
    """
    for part, values in after.items():
        for name in values:
            is_channel = name in target.channels
            if not is_channel or target.channels[name].partition != part:
                message = (
                    f"{name} is no channel of {part} in version {target.version}; "
                    "the migration must take it out"
                )
                raise InvalidValue(message, channel=str(name))


def _refuse_lost_channels(
    target: Compiled,
    before: State,
    after: State,
) -> None:
    """Raise `InvalidValue` for a channel that a step removed although the target has
    it: nothing is lost silently.
    """
    remaining: set[str] = set()
    for values in after.values():
        remaining.update(values)
    for values in before.values():
        for name in values:
            if name in target.channels and name not in remaining:
                raise InvalidValue(
                    f"the migration lost the channel {name}, "
                    f"which version {target.version} still has",
                    channel=name,
                )


def _staged(
    target: Compiled,
    values: Mapping[str, Any],
    limit: int | None,
) -> dict[str, Any]:
    staged: dict[str, Any] = {}
    for name, value in values.items():
        channel = target.channels[name]
        # The type refuses this None, which is the channel's default.
        if value is None and channel.lax_none:
            staged[name] = None
        else:
            staged[name] = channel.stage(value, limit=limit)
    return staged
