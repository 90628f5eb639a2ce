"""The differences between two states as operations (RFC 6902): the one form in which a
patch is kept between its views. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from checkpoints.core.diff import ADDED, REMOVED, ValueDifference, differences
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.travel.departure import State

MOST = 200
"""The most places that are listed one by one; if more differ, whole channels are
listed.
"""

Place = tuple[str, ValueDifference]
"""A partition, and a difference in it."""
Operation = dict[str, Any]


def changed_places(
    before: State,
    after: State,
) -> Iterator[Place]:
    """Yield each place that differs, with its partition, in the order in which
    operations may follow one another.
    """
    places: list[Place] = []
    for partition in PARTITIONS:
        for place in differences(before[partition], after[partition]):
            places.append((partition, place))
    if len(places) > MOST:
        places = _whole_channels(places, before, after)

    removed: list[Place] = []
    for partition, place in places:
        if place.kind == REMOVED:
            removed.append((partition, place))
        else:
            yield partition, place
    # The last item of a list goes first, so that the others keep their places.
    yield from reversed(removed)


def _whole_channels(
    places: Iterable[Place],
    before: State,
    after: State,
) -> list[Place]:
    """Return one difference for each channel in which a place differs."""
    whole: dict[tuple[str, str], Place] = {}
    for partition, place in places:
        name = str(place.path[0])
        if (partition, name) in whole:
            continue
        channel = _whole_channel(before[partition], after[partition], name)
        whole[partition, name] = (partition, channel)
    return list(whole.values())


def _whole_channel(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    name: str,
) -> ValueDifference:
    # An operation that adds a channel replaces one that is there.
    kind = ADDED if name in after else REMOVED
    return ValueDifference((name,), kind, before.get(name), after.get(name))


def operation_of(place: ValueDifference) -> Operation:
    """Return a difference as an operation on its partition. What was added to a list is
    appended to it.
    """
    keys = [_escaped_key(key) for key in place.path]
    # Without a number it applies as well if the list has another length.
    if place.kind == ADDED and isinstance(place.path[-1], int):
        keys[-1] = "-"
    pointer = "/" + "/".join(keys)
    if place.kind == REMOVED:
        return {"op": "remove", "path": pointer}
    name = "add" if place.kind == ADDED else "replace"
    return {
        "op": name,
        "path": pointer,
        "value": place.after,
    }


def _escaped_key(key: str | int) -> str:
    """Return a key as a part of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def patch_between(
    before: State,
    after: State,
) -> dict[str, list[Operation]]:
    """Return the patch that makes the second state of the first: operations by
    partition, empty if nothing differs.
    """
    patch: dict[str, list[Operation]] = {}
    for partition, place in changed_places(before, after):
        patch.setdefault(partition, []).append(operation_of(place))
    return patch
