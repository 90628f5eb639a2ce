"""One value before and after a change, as two leaves that a reader can tell apart:
wherever a page shows an old value beside a new one, this draws both. Pure.
"""

from dataclasses import dataclass
from typing import Any

from approvals.display.edit_script import Steps, shared_start
from approvals.display.leaf import (
    ABSENT,
    LONGEST,
    NOTHING,
    REMOVED,
    Leaf,
    json_leaf,
    leaf_of,
)
from approvals.display.value_types import ValueType
from checkpoints.core import diff
from orchestrator.engine.values.canonical import encode

ONE_LINE = 400
"""The most characters of a value in a table of changes that names them by their paths.
"""
CONTEXT = 80
"""The number of characters that are shown before the first difference of two long
values.
"""
NOT_THERE = Leaf("nothing", NOTHING["absent"])
GONE = Leaf("nothing", REMOVED)


@dataclass(frozen=True, slots=True)
class DrawnChange:
    """Both sides of a change, `before` and `after`, for the filter `shown_value`."""

    before: Leaf
    after: Leaf


def draw_change(
    before: Any,
    after: Any,
    *,
    declared: ValueType | None,
    longest: int = LONGEST,
    missing: Leaf = GONE,
) -> DrawnChange:
    """Return both sides of a change. They look the same if and only if the values are
    the same JSON, except for two that were erased.

    A side that is `ABSENT` has no value, which differs from null; `missing` is shown
    for an `after` that is absent. `declared` is the type of both values; with None they
    are lines of JSON. If both values are longer than `longest`, the parts with their
    first difference are shown.
    """
    if before is ABSENT:
        return DrawnChange(NOT_THERE, _leaf(after, declared, longest))
    old = _leaf(before, declared, longest)
    if after is ABSENT:
        return DrawnChange(old, missing)
    if encode(before) == encode(after):
        # Their keys may be in another order, which is no change.
        return DrawnChange(old, old)

    new = _leaf(after, declared, longest)
    if old.rest and new.rest:
        # If two long values begin alike, only their fingerprints would differ: show the
        # part with the first difference.
        start = _start_of_part(before, after, longest)
        if start:
            old = json_leaf(before, longest=longest, start=start)
            new = json_leaf(after, longest=longest, start=start)
    if _read_the_same(old, new):
        # An amount without a currency reads like a plain number.
        start = _start_of_part(before, after, longest)
        old = json_leaf(before, longest=longest, start=start)
        new = json_leaf(after, longest=longest, start=start)
    return DrawnChange(old, new)


def _read_the_same(old: Leaf, new: Leaf) -> bool:
    """Return whether only the fonts of two leaves differ. Two values that were erased
    read the same too, and there is nothing to tell them apart by.
    """
    if old.kind == "nothing" and new.kind == "nothing":
        return False
    return _as_read(old) == _as_read(new)


def _as_read(leaf: Leaf) -> tuple[str, ...]:
    """Return what a reader sees of a leaf whatever its font: text, or the items of a
    list.
    """
    if leaf.kind == "list":
        texts = ["list"]
        for item in leaf.items:
            texts += _as_read(item)
        return tuple(texts)
    if leaf.kind == "quoted":
        return (f'"{leaf.text}"', leaf.rest)
    return (leaf.text, leaf.rest)


def _leaf(value: Any, declared: ValueType | None, longest: int) -> Leaf:
    if declared is None:
        return json_leaf(value, longest=longest)
    return leaf_of(value, longest=longest, declared=declared)


def _start_of_part(before: Any, after: Any, longest: int) -> int:
    """Return the character of their JSON from which two values that differ are shown; 0
    where the first difference is in the part from the beginning.
    """
    old = encode(before).decode()
    new = encode(after).decode()
    start = shared_start(old, new, Steps())
    return start - CONTEXT if start > longest - CONTEXT else 0


def sides_of(kind: str, before: Any, after: Any) -> tuple[Any, Any]:
    """Return the two values of a difference that has None for the one that is missing,
    with `ABSENT` for it. `kind` is that of `checkpoints.core.diff.Difference`.
    """
    # None may as well be the value null, so the kind decides.
    if kind == diff.ADDED:
        return ABSENT, after
    if kind == diff.REMOVED:
        return before, ABSENT
    return before, after
