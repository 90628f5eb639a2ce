"""What differs between two JSON values, path by path. Pure; the timeline and whoever compares states calls it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.ops import same

ADDED, REMOVED, CHANGED = "added", "removed", "changed"

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

    Objects and lists are entered; anything else that differs is one difference, a change of type included.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif not same(before, after):
        yield Difference(path, CHANGED, before, after)


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: Path) -> Iterator[Difference]:
    for key in sorted(before.keys() | after.keys()):
        here = (*path, key)
        if key not in before:
            yield Difference(here, ADDED, None, after[key])
        elif key not in after:
            yield Difference(here, REMOVED, before[key], None)
        else:
            yield from differences(before[key], after[key], path=here)


def _of_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    shared = min(len(before), len(after))
    for index in range(shared):
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
