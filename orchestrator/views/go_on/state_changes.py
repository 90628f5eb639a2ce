"""What differs between two states, as operations (RFC 6902): the one form in which a patch is kept between its views.
Pure.
"""

from collections.abc import Iterator
from typing import Any

from checkpoints.core.diff import ADDED, REMOVED, Difference, differences
from orchestrator.engine.patch import PARTITIONS
from orchestrator.runs.departure import State

MOST = 200
"""Places that are told one by one; where more differ, the channels are told as wholes."""


def changed_places(before: State, after: State) -> Iterator[tuple[str, Difference]]:
    """Yield each place that differs, with its partition, in the order in which operations may follow one another."""
    places = [(part, place) for part in PARTITIONS for place in differences(before[part], after[part])]
    if len(places) > MOST:
        channels = dict.fromkeys((part, str(place.path[0])) for part, place in places)
        places = [(part, _whole_channel(before[part], after[part], name)) for part, name in channels]
    # The last item of a list goes first, so that the others keep their places.
    yield from [pair for pair in places if pair[1].kind != REMOVED]
    yield from [pair for pair in reversed(places) if pair[1].kind == REMOVED]


def _whole_channel(before: dict[str, Any], after: dict[str, Any], name: str) -> Difference:
    kind = REMOVED if name not in after else ADDED
    return Difference((name,), kind, before.get(name), after.get(name))


def operation_of(place: Difference) -> dict[str, Any]:
    """Return a difference as an operation on its partition. What was added to a list comes to its end."""
    keys = [str(key).replace("~", "~0").replace("/", "~1") for key in place.path]
    if place.kind == REMOVED:
        return {"op": "remove", "path": "/" + "/".join(keys)}
    if place.kind == ADDED and isinstance(place.path[-1], int):
        keys[-1] = "-"
    name = "add" if place.kind == ADDED else "replace"
    return {"op": name, "path": "/" + "/".join(keys), "value": place.after}


def patch_between(before: State, after: State) -> dict[str, list[dict[str, Any]]]:
    """Return the patch that makes one state of another: {partition: operations}, empty where nothing differs."""
    patch: dict[str, list[dict[str, Any]]] = {}
    for part, place in changed_places(before, after):
        patch.setdefault(part, []).append(operation_of(place))
    return patch
