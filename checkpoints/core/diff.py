"""What differs between two JSON values, path by path. Pure; the timeline and whoever compares states calls it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checkpoints.core.tombstone import is_tombstone
from orchestrator.engine.ops import same

ADDED, REMOVED, CHANGED = "added", "removed", "changed"

CHUNK = 512
"""Items of a list that are compared at once; only where they differ one by one."""
DEEP = 6
"""Keys of a path up to which what is equal is passed over as a whole. Deeper down every box is entered once."""
_BOXES = (dict, list)

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two values differ. `before` is None for what was added, `after` for what was removed."""

    path: Path
    kind: str
    before: Any
    after: Any


def differences(before: Any, after: Any, *, path: Path = ()) -> Iterator[Difference]:
    """The places where `after` differs from `before`: keys in sorted order, lists by index.

    Objects and lists are entered; anything else that differs is one difference, a change of type included, and what
    was erased.
    """
    if isinstance(before, dict) and isinstance(after, dict) and not (is_tombstone(before) or is_tombstone(after)):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif not same(before, after):
        yield Difference(path, CHANGED, before, after)


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: Path) -> Iterator[Difference]:
    for key in sorted(before.keys() | after.keys()):
        if key not in before:
            yield Difference((*path, key), ADDED, None, after[key])
        elif key not in after:
            yield Difference((*path, key), REMOVED, before[key], None)
        elif not _is_passed(before[key], after[key], path):
            yield from differences(before[key], after[key], path=(*path, key))


def _is_passed(one: Any, other: Any, path: Path) -> bool:
    """Whether two values are seen to be the same without being entered."""
    if type(one) not in _BOXES:
        return type(one) is type(other) and one == other
    return len(path) < DEEP and same(one, other)


def _of_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    shared = min(len(before), len(after))
    for start in range(0, shared, CHUNK):
        stop = min(start + CHUNK, shared)
        if _is_passed(before[start:stop], after[start:stop], path):
            continue
        for index in range(start, stop):
            if not _is_passed(before[index], after[index], path):
                yield from differences(before[index], after[index], path=(*path, index))
    for index in range(shared, len(after)):
        yield Difference((*path, index), ADDED, None, after[index])
    for index in range(shared, len(before)):
        yield Difference((*path, index), REMOVED, before[index], None)


def written(path: Path) -> str:
    """A path as people read it: `payout.lines[2].amount`; a key that is no plain word stands in brackets, quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("-", "_").isidentifier():
            text += f".{part}" if text else part
        else:
            quoted = part.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{quoted}"]'
    return text
