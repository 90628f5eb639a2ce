"""Parsing of paths into a state, as `diff.written` writes them; and the value of one
channel, followed through changes of documents without the rest. Pure; the timeline
calls it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from checkpoints.core.diff import Path, written
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import ops
from orchestrator.engine.values.ops import Op

STATE = ("scratch", "artifacts")
"""Partitions that nodes write. A channel is in one of them only."""
PARTITIONS = ("input", *STATE, "diagnostics")
LONGEST = 2000
"""The most characters of a path."""

_PART = re.compile(
    r"\[(?P<index>\d{1,9})\]"
    r'|\["(?P<quoted>(?:[^"\\]|\\["\\])*)"\]'
    r'|(?P<dot>\.?)(?P<word>[^.\[\]"\\]+)'
)


class Absent:
    """Stands for a value that is not there. There is one: `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


@frozen
class StatePath:
    """A path below a channel. `partitions` are those in which the channel may be: only
    one if the path names it.
    """

    partitions: tuple[str, ...]
    parts: Path

    @property
    def channel(self) -> str:
        return str(self.parts[0])

    def __str__(self) -> str:
        if len(self.partitions) == 1:
            return written((self.partitions[0], *self.parts))
        return written(self.parts)


def parsed_path(text: Any) -> StatePath:
    """Return the path that a text names: `payout.lines[2].amount`, or with its
    partition `scratch.payout.lines[2].amount`.

    A channel with the name of a partition needs its partition before it. Raises
    `InvalidValue`.
    """
    parts = _parsed_parts(text)
    # Without a partition the channel may be in either that nodes write.
    partitions: tuple[str, ...] = STATE
    if parts[0] in PARTITIONS:
        partitions = (str(parts[0]),)
        parts = parts[1:]
    if not parts:
        raise InvalidValue(
            f"the path {text} is a whole partition; name a channel in it", path="path"
        )
    if not isinstance(parts[0], str):
        raise InvalidValue(
            "a path begins with a partition or the name of a channel", path="path"
        )
    return StatePath(partitions, parts)


def _parsed_parts(text: Any) -> Path:
    if not isinstance(text, str) or not 1 <= len(text) <= LONGEST:
        raise InvalidValue(
            f"a path is a text of 1 to {LONGEST} characters, as payout.lines[2].amount",
            path="path",
        )
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or not _is_well_placed(match, first=not parts):
            rest = text[position : position + 20]
            raise InvalidValue(
                "a path is written as payout.lines[2].amount, other keys as "
                f'["a b"]; not at {rest!r}',
                path="path",
                at=position,
            )
        parts.append(_part(match))
        position = match.end()
    return tuple(parts)


def _is_well_placed(match: re.Match[str], *, first: bool) -> bool:
    """Return whether a word is first, or after a dot, and needs no quotes; any other
    part may stand anywhere.
    """
    word = match["word"]
    if word is None:
        return True
    is_plain = word.replace("-", "_").isidentifier()
    has_dot = match["dot"] != ""
    return is_plain and has_dot != first


def _part(match: re.Match[str]) -> str | int:
    if match["index"] is not None:
        return int(match["index"])
    if match["word"] is not None:
        return match["word"]
    return re.sub(r"\\(.)", r"\1", match["quoted"])


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path; `ABSENT` where there is none."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return ABSENT
    return value


def value_in(document: Mapping[str, Any], path: StatePath) -> Any:
    """Return the value at a path in a document; `ABSENT` where there is none."""
    for partition in path.partitions:
        value = value_at(document.get(partition), path.parts)
        if value is not ABSENT:
            return value
    return ABSENT


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values, each of which may be absent, are the same value."""
    if value is ABSENT or other is ABSENT:
        return value is other
    return ops.same(value, other)


def narrowed(document: Mapping[str, Any], path: StatePath) -> dict[str, Any]:
    """Return only the path's channel of a document, in the partitions in which it may
    be.
    """
    narrow = {}
    for partition in path.partitions:
        narrow[partition] = _only(document.get(partition, {}), path.channel)
    return narrow


def _only(values: Any, channel: str) -> dict[str, Any]:
    if isinstance(values, dict) and channel in values:
        return {channel: values[channel]}
    return {}


def narrowed_op(op: Op, path: StatePath) -> Op:
    """Return the part of an op on a document that concerns the path's channel, for
    documents that are `narrowed`.
    """
    if op["op"] == "set":
        return ops.put(narrowed(op["value"], path))
    keys = {}
    for partition, inner in op["keys"].items():
        if partition in path.partitions:
            narrow = _op_on_channel(inner, path.channel)
            if narrow is not None:
                keys[partition] = narrow
    return ops.within(keys)


def _op_on_channel(op: Op, channel: str) -> Op | None:
    """Return the part of a partition's op that concerns one channel; None if a `within`
    changes other channels only.
    """
    if op["op"] == "set":
        return ops.put(_only(op["value"], channel))
    # Within the partition: its keys are channels.
    keys = _only(op["keys"], channel)
    removed = [name for name in op.get("gone", ()) if name == channel]
    if not keys and not removed:
        return None
    return ops.within(keys, removed)


def is_touched(op: Op, path: StatePath) -> bool:
    """Return whether an op on a document concerns the path's channel."""
    narrow = narrowed_op(op, path)
    return narrow["op"] == "set" or bool(narrow["keys"])


def changed_document(
    document: dict[str, Any],
    change: Iterable[Op],
    path: StatePath,
) -> dict[str, Any]:
    """Return a `narrowed` document after a change. The old one is not touched."""
    for op in change:
        document = ops.apply(document, narrowed_op(op, path))
    return document


def nodes_that_ran(change: Iterable[Op], path: StatePath) -> list[str]:
    """Return the nodes of those supersteps of a change that concern the path's channel,
    in the order of the change.

    The engine's notes in each op contain the nodes that ran in it; an op that sets the
    whole document contains none.
    """
    names: dict[str, None] = {}
    for op in change:
        if op["op"] == "within" and is_touched(op, path):
            notes = op["keys"].get("diagnostics", {}).get("keys", {})
            nodes = notes.get("nodes", {})
            # A node keeps the place of its first superstep.
            names |= dict.fromkeys(nodes.get("keys", ()))
    return list(names)
