"""Paths into a state, as `diff.written` writes them, read back; and the value of one channel followed through changes
of documents without the rest. Pure; the timeline calls it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from checkpoints.core.diff import Path, written
from orchestrator.engine import ops
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.ops import Op

STATE = ("scratch", "artifacts")
"""Partitions that nodes write. The name of a channel stands in one of them only."""
PARTITIONS = ("input", *STATE, "diagnostics")
LONGEST = 2000
"""Characters of a path."""

_PART = re.compile(r'\[(?P<index>\d{1,9})\]|\["(?P<quoted>(?:[^"\\]|\\["\\])*)"\]|(?P<dot>\.?)(?P<word>[^.\[\]"\\]+)')


class Absent:
    """Stands for a value that is not there. There is one: `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


@frozen
class StatePath:
    """A path below a channel. `partitions` are those in which the channel may stand: one where it was named."""

    partitions: tuple[str, ...]
    parts: Path

    @property
    def channel(self) -> str:
        return str(self.parts[0])

    def __str__(self) -> str:
        return written((self.partitions[0], *self.parts) if len(self.partitions) == 1 else self.parts)


def parsed_path(text: Any) -> StatePath:
    """The path that a text writes: `payout.lines[2].amount`, or with its partition `scratch.payout.lines[2].amount`.

    A channel that is called like a partition needs its partition before it. Raises `InvalidValue`.
    """
    parts = _parts(text)
    named = parts[0] in PARTITIONS
    if len(parts) == 1 and named:
        raise InvalidValue(f"the path {text} is a whole partition; name a channel in it", path="path")
    if not isinstance(parts[1 if named else 0], str):
        raise InvalidValue("a path begins with a partition or the name of a channel", path="path")
    return StatePath((str(parts[0]),), parts[1:]) if named else StatePath(STATE, parts)


def _parts(text: Any) -> Path:
    if not isinstance(text, str) or not 1 <= len(text) <= LONGEST:
        raise InvalidValue(f"a path is a text of 1 to {LONGEST} characters, as payout.lines[2].amount", path="path")
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or not _is_well_placed(found, first=not parts):
            message = (
                f'a path is written as payout.lines[2].amount, other keys as ["a b"]; not at {text[at : at + 20]!r}'
            )
            raise InvalidValue(message, path="path", at=at)
        parts.append(_part(found))
        at = found.end()
    return tuple(parts)


def _is_well_placed(found: re.Match[str], *, first: bool) -> bool:
    """A word stands first, or behind a dot; and it is one that needs no quotes."""
    word = found["word"]
    return word is None or (word.replace("-", "_").isidentifier() and (found["dot"] == "") == first)


def _part(found: re.Match[str]) -> str | int:
    if found["index"] is not None:
        return int(found["index"])
    return found["word"] if found["word"] is not None else re.sub(r"\\(.)", r"\1", found["quoted"])


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; `ABSENT` where there is none."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return ABSENT
    return value


def value_in(document: Mapping[str, Any], path: StatePath) -> Any:
    """The value at a path in a document; `ABSENT` where there is none."""
    for partition in path.partitions:
        found = value_at(document.get(partition), path.parts)
        if found is not ABSENT:
            return found
    return ABSENT


def is_same(one: Any, other: Any) -> bool:
    """Whether two values, each of which may be absent, are the same value."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return ops.same(one, other)


def narrowed(document: Mapping[str, Any], path: StatePath) -> dict[str, Any]:
    """Of a document only the path's channel, in the partitions in which it may stand."""
    return {partition: _only(document.get(partition, {}), path.channel) for partition in path.partitions}


def _only(values: Any, channel: str) -> dict[str, Any]:
    return {channel: values[channel]} if isinstance(values, dict) and channel in values else {}


def narrowed_op(op: Op, path: StatePath) -> Op:
    """Of an op on a document only what it does to the path's channel, for documents that are `narrowed`."""
    if op["op"] == "set":
        return ops.put(narrowed(op["value"], path))
    keys = {name: _op_on(inner, path.channel) for name, inner in op["keys"].items() if name in path.partitions}
    return ops.within({name: inner for name, inner in keys.items() if inner is not None})


def _op_on(op: Op, channel: str) -> Op | None:
    """Of an op on a partition only what it does to one channel; None where it does nothing to it."""
    if op["op"] == "set":
        return ops.put(_only(op["value"], channel))
    if op["op"] == "merge":
        return {"op": "merge", "items": _only(op["items"], channel)}
    keys = {name: inner for name, inner in op["keys"].items() if name == channel}
    gone = [name for name in op.get("gone", ()) if name == channel]
    return ops.within(keys, gone) if keys or gone else None


def is_touched(op: Op, path: StatePath) -> bool:
    """Whether an op on a document says something of the path's channel."""
    narrow = narrowed_op(op, path)
    return narrow["op"] == "set" or bool(narrow["keys"])


def changed_document(document: dict[str, Any], change: Iterable[Op], path: StatePath) -> dict[str, Any]:
    """A `narrowed` document after a change. The old one is not touched."""
    for op in change:
        document = ops.apply(document, narrowed_op(op, path))
    return document


def nodes_that_ran(change: Iterable[Op], path: StatePath) -> list[str]:
    """The nodes of those supersteps of a change that said something of the path's channel, in the order of the change.

    The engine's notes in each op tell which nodes ran in it; an op that sets the whole document tells nothing.
    """
    names: dict[str, None] = {}
    for op in change:
        if op["op"] == "within" and is_touched(op, path):
            noted = op["keys"].get("diagnostics", {}).get("keys", {}).get("nodes", {})
            names |= dict.fromkeys(noted.get("keys", ()))
    return list(names)
