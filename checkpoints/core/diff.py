"""The differences between two JSON values, path by path. Pure; the timeline and all
other code that compares states calls it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checkpoints.core.tombstone import is_tombstone
from orchestrator.engine.values.ops import same

ADDED = "added"
REMOVED = "removed"
CHANGED = "changed"

CHUNK = 512
"""The most items of a list that are compared at once; one by one only where they
differ.
"""
DEEP = 6
"""The most keys of a path up to which equal values are passed over as a whole. Deeper
down, every dict and list is entered once.
"""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """One place where two values differ. `before` is None for an added value, `after`
    for a removed one.
    """

    path: Path
    kind: str
    before: Any
    after: Any


def differences(
    before: Any,
    after: Any,
    *,
    path: Path = (),
) -> Iterator[ValueDifference]:
    """Yield the places where `after` differs from `before`: keys in sorted order, lists
    by index.

    Objects and lists are entered. Any other value that differs is one difference; so is
    a change of type, and an erased value.
    """
    # A tombstone is an object only in its form.
    are_objects = isinstance(before, dict) and isinstance(after, dict)
    if are_objects and not (is_tombstone(before) or is_tombstone(after)):
        yield from _object_differences(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(before, after, path)
    elif not same(before, after):
        yield ValueDifference(path, CHANGED, before, after)


def _object_differences(
    before: dict[str, Any],
    after: dict[str, Any],
    path: Path,
) -> Iterator[ValueDifference]:
    for key in sorted(before.keys() | after.keys()):
        if key not in before:
            yield ValueDifference((*path, key), ADDED, None, after[key])
            continue
        if key not in after:
            yield ValueDifference((*path, key), REMOVED, before[key], None)
            continue
        if not _is_passed_over(before[key], after[key], path):
            key_path = (*path, key)
            yield from differences(before[key], after[key], path=key_path)


def _is_passed_over(
    before: Any,
    after: Any,
    path: Path,
) -> bool:
    """Return whether two values are seen to be the same without being entered."""
    if type(before) in (dict, list):
        # Comparing as a whole at each depth would walk deep values again and again.
        return len(path) < DEEP and same(before, after)
    # To Python 1, 1.0 and True are equal; to JSON they are three values.
    return type(before) is type(after) and before == after


def _list_differences(
    before: list[Any],
    after: list[Any],
    path: Path,
) -> Iterator[ValueDifference]:
    shared = min(len(before), len(after))

    # Long lists differ in few items, so most of them are passed over in chunks.
    for start in range(0, shared, CHUNK):
        stop = min(start + CHUNK, shared)
        if _is_passed_over(before[start:stop], after[start:stop], path):
            continue
        for index in range(start, stop):
            if not _is_passed_over(before[index], after[index], path):
                item_path = (*path, index)
                yield from differences(before[index], after[index], path=item_path)

    for index in range(shared, len(after)):
        yield ValueDifference((*path, index), ADDED, None, after[index])
    for index in range(shared, len(before)):
        yield ValueDifference((*path, index), REMOVED, before[index], None)


def written(path: Path) -> str:
    """Return a path as people read it: `payout.lines[2].amount`; a key that is not a
    plain word is in brackets, quoted.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.replace("-", "_").isidentifier():
            quoted = part.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{quoted}"]'
        elif text:
            text += f".{part}"
        else:
            text = part
    return text
