"""The values that a patch changes, old above new. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from approvals.display.drawn_change import (
    ONE_LINE,
    DrawnChange,
    draw_change,
    sides_of,
)
from approvals.display.leaf import Leaf
from checkpoints.core.diff import (
    ADDED,
    REMOVED,
    ValueDifference,
    differences,
    written,
)
from orchestrator.engine.travel.patch import PARTITIONS, patched
from orchestrator.travel.departure import Departure
from orchestrator.views.go_on.value_texts import type_of

MOST_LINES = 100
"""The most changed values that are shown."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A value that the patch changes, before and after; None if it is not there."""

    path: str
    before: Leaf | None
    after: Leaf | None


def patch_lines(
    point: Departure,
    patch: Mapping[str, Any],
) -> list[PatchLine]:
    """Return the values that a valid patch changes, by path; one more than are shown,
    if there are more.
    """
    return list(islice(_changed_lines(point, patch), MOST_LINES + 1))


def _changed_lines(
    point: Departure,
    patch: Mapping[str, Any],
) -> Iterator[PatchLine]:
    after = patched(point.going_on, patch)
    for part in PARTITIONS:
        for place in differences(point.going_on[part], after[part]):
            change = _drawn(point, place)
            yield PatchLine(
                path=f"{part}.{written(place.path)}",
                before=None if place.kind == ADDED else change.before,
                after=None if place.kind == REMOVED else change.after,
            )


def _drawn(point: Departure, place: ValueDifference) -> DrawnChange:
    before, after = sides_of(place.kind, place.before, place.after)
    declared = None
    # Objects and lists are lines of JSON: their fields have no rows here.
    if not (_is_box(place.before) or _is_box(place.after)):
        channel = point.graph.channels.get(str(place.path[0]))
        declared = type_of(channel).at(place.path[1:])
    return draw_change(before, after, declared=declared, longest=ONE_LINE)


def _is_box(value: Any) -> bool:
    return isinstance(value, dict | list)
