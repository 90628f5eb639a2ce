"""What a patch changes, value by value, old above new; and where a word stands in a state. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from checkpoints.core.diff import ADDED, REMOVED, Difference, differences, written
from checkpoints.core.visible_json import json_text
from orchestrator.engine.patch import PARTITIONS, patched
from orchestrator.runs.departure import Departure, State
from orchestrator.views.go_on.value_texts import UNTYPED, plain_text, type_of
from orchestrator.views.run_details import ONE_LINE, compact, shown_pair

MOST_LINES = 100
"""Changed values that are shown."""
MOST_HITS = 50
"""Places of a word that are shown."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A value that the patch changes, before and after; None where it is not there."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A value of the state in which a word stands, or in whose path it does; its channel leads to its field."""

    path: str
    channel: str
    value: str


def patch_lines(point: Departure, patch: Mapping[str, Any]) -> list[PatchLine]:
    """The values that a sound patch changes, by path; one more than are shown, where there are more."""
    after = patched(point.going_on, patch)
    places = ((part, one) for part in PARTITIONS for one in differences(point.going_on[part], after[part]))
    lines = (PatchLine(f"{part}.{written(place.path)}", *_pair(point, place)) for part, place in places)
    return list(islice(lines, MOST_LINES + 1))


def _pair(point: Departure, place: Difference) -> tuple[str | None, str | None]:
    """Return the old and the new value as texts; long ones, objects and lists from where they differ."""
    if not (_is_plain(place.before) and _is_plain(place.after)):
        return shown_pair(place.kind, place.before, place.after)
    channel = point.graph.channels.get(str(place.path[0]))
    kind = type_of(channel).at(place.path[1:]) if channel is not None else UNTYPED
    before = None if place.kind == ADDED else plain_text(place.before, kind)
    after = None if place.kind == REMOVED else plain_text(place.after, kind)
    if before == after:
        # Two values that differ never read the same: 4.5 and 4.50 as numbers, 7 and "7".
        return shown_pair(place.kind, place.before, place.after)
    return before, after


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list) and len(_text(value)) <= ONE_LINE


def hits(state: State, word: str) -> list[Hit]:
    """The places where a word stands in keys and values, in any case; one more than are shown, where there are more."""
    wanted = word.strip().casefold()
    if not wanted:
        return []
    found = (
        Hit(path, channel, plain_text(value) if _is_plain(value) else compact(value))
        for path, channel, value in _leaves(state)
        if wanted in path.casefold() or wanted in _text(value).casefold()
    )
    return list(islice(found, MOST_HITS + 1))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _leaves(state: State) -> Iterator[tuple[str, str, Any]]:
    for part in PARTITIONS:
        for channel, value in state[part].items():
            for path, leaf in _below((part, channel), value):
                yield written(path), channel, leaf


def _below(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The values in a value that are no boxes, and empty boxes; without recursion, for a state may be deep."""
    left: list[tuple[tuple[str | int, ...], Any]] = [(path, value)]
    while left:
        here, one = left.pop()
        if isinstance(one, dict | list) and one:
            pairs = list(one.items()) if isinstance(one, dict) else list(enumerate(one))
            left.extend(((*here, key), inner) for key, inner in reversed(pairs))
        else:
            yield here, one
