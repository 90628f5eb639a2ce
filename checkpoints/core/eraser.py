"""What becomes of a run's values when they are erased: all of them, or those at paths of its state. Pure.

Both erasers answer the same questions, one a kind of value that rows hold. A change of a checkpoint is erased op by op,
so that erased changes still come to the erased state.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from checkpoints.core.state_paths import PARTITIONS, STATE, StatePath
from checkpoints.core.tombstone import TEXT, tombstone
from checkpoints.core.visible_text import CUT
from orchestrator.engine import ops
from orchestrator.engine.ops import Op

Where = tuple[Any, ...]
"""Where a value stands in a document: partition, channel, keys and indices; None for an index that is not known."""

SHORTEST_WORD = 4
"""Characters of a text that is looked for within other texts; a shorter one is erased at its path only."""
LONGEST_ERASED = max(CUT) // SHORTEST_WORD * len(TEXT)
"""A text that was cut off may be so long when each word in it was erased."""
_TEXTS = frozenset({"message", "why", "path", "warnings", "label", "reads"})
"""Keys of the engine's own notes under which texts stand that a node may have brought."""
ERROR_TEXTS = frozenset({"message", "why", "error", "traceback", "cure"})
"""Keys under which an error is told. Libraries quote values there in forms that no search finds: shortened in the
middle, escaped, as Python writes them.
"""
_KEPT_OF_ERROR = frozenset({"code", "type", "node", "task", "version", "fingerprint", "run", "checkpoint"})
"""Names and ids in what an error tells."""
_NOTES = frozenset({"frontier", "open", "diagnostics"})

_KEPT_OF_OPEN = frozenset({"superstep", "results", "asked", "tries", "due", "without", "stored", "overlay"})
_KEPT_OF_FRONTIER = frozenset({
    "tokens", "errors", "visits", "sends", "waiting", "rejected", "visited", "written"
})  # fmt: skip
"""What keeps its form there; anything else goes as a whole, so that nothing new is forgotten."""


class WholeEraser:
    """Erases every value of a run. Names, numbers of rows, hashes and who did what when are no values."""

    counts = False

    def __init__(self, record: Any) -> None:
        self.mark = tombstone(record)

    def value(self, channel: str, value: Any) -> Any:
        """The value of a channel, or of a write to it."""
        return None if value is None else self.mark

    def opaque(self, value: Any) -> Any:
        """A value whose form nobody needs."""
        return None if value is None else self.mark

    def texts(self, value: Any) -> Any:
        """A value whose form pages need: texts and numbers in it go."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.texts(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.texts(inner) for inner in value]
        return value if value is None or isinstance(value, bool) else self.mark

    def text(self, text: str) -> str:
        """A text that stays a text."""
        return TEXT if text else text

    def error(self, value: Any) -> Any:
        """Erase an error, as any value whose form pages need."""
        return self.texts(value)

    def input(self, value: Any) -> Any:
        """What the run was started with."""
        return self.mark

    def at(self, value: Any, where: Where) -> Any:
        """What stands at this place of a document."""
        if self.is_whole(where):
            return self.opaque(value)
        if isinstance(value, str):
            return self.text(value) if where[0] in _NOTES and _TEXTS.intersection(where[1:]) else value
        return _inner(value, where, self.at)

    def patch(self, value: Any) -> Any:
        """What a fork changed."""
        return self.opaque(value)

    def key(self, key: str, where: Where) -> str:
        """The name of something in a box that stands there."""
        return key

    def is_whole(self, where: Where) -> bool:
        """Whether all that stands there goes."""
        return (len(where) == 2 and where[0] in STATE) or _is_noted_value(where) or _is_unknown_note(where)


def _is_noted_value(where: Where) -> bool:
    """Whether a value of a node or a person stands there, in the engine's own notes."""
    match where:
        case ("open", "results", _, "output", "writes", _, "value") | ("open", "results", _, "output", "sends", _, 1):
            return True
        case ("open", "stored", "input") | ("open", "overlay", _, _, "value"):
            return True
        case ("frontier", "sends", _, 1, _) | ("frontier", "waiting", _, _, "sends", _, 1):
            return True
    return False


def _is_error_text(where: Where) -> bool:
    """Return whether an error is told there, in the engine's own notes."""
    if where[0] not in _NOTES:
        return False
    return where[-1] in ERROR_TEXTS or where[:2] == ("diagnostics", "warnings")


def _is_unknown_note(where: Where) -> bool:
    match where:
        case ("open", part):
            return part not in _KEPT_OF_OPEN
        case ("frontier", part):
            return part not in _KEPT_OF_FRONTIER
    return False


class PathEraser:
    """Erases the values at these paths of a run's state, and the `words` that stood there wherever else they occur."""

    counts = True
    """It needs the state before a change: paths name items of lists by number."""

    def __init__(self, record: Any, paths: Sequence[StatePath], words: Iterable[str]) -> None:
        self.mark = tombstone(record)
        self._paths = paths
        long_words = [word for word in words if len(word) >= SHORTEST_WORD]
        self._words = sorted({form for word in long_words for form in _forms(word)}, key=len, reverse=True)

    def value(self, channel: str, value: Any) -> Any:
        """The value of a channel, or of a write to it."""
        return self.at(value, ("*", channel))

    def opaque(self, value: Any) -> Any:
        """A value whose form nobody needs."""
        return self.texts(value)

    def texts(self, value: Any) -> Any:
        """A value anywhere else than in the state: each text in it."""
        return self.at(value, ("",))

    def text(self, text: str) -> str:
        """A text that stays a text."""
        kept, at = "", 0
        for start, end in _joined(self._found(text)):
            kept, at = kept + text[at:start] + TEXT, end
        return kept + text[at:]

    def error(self, value: Any) -> Any:
        """Erase every text of an error as a whole; its names, ids and numbers stay."""
        if isinstance(value, str):
            return TEXT if value else value
        if isinstance(value, dict):
            return {key: inner if key in _KEPT_OF_ERROR else self.error(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.error(inner) for inner in value]
        return value

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """From where to where words stand in a text; at its end also the beginning of one, where it may be cut off."""
        for word in self._words:
            start = text.find(word)
            while start >= 0:
                yield start, start + len(word)
                start = text.find(word, start + len(word))
        if not _may_be_cut(text):
            return
        for start in range(len(text) - SHORTEST_WORD + 1):
            if any(word.startswith(text[start:]) for word in self._words):
                yield start, len(text)
                return

    def input(self, value: Any) -> Any:
        """What the run was started with."""
        return self.at(value, ("input",))

    def patch(self, value: Any) -> Any:
        """What a fork changed: partitions, each of them values or operations; or channels."""
        if isinstance(value, dict) and value.keys() <= set(PARTITIONS):
            return {name: self._part(part, name) for name, part in value.items()}
        return self.at(value, ("*",))

    def _part(self, part: Any, name: str) -> Any:
        return [self._operation(one, name) for one in part] if isinstance(part, list) else self.at(part, (name,))

    def _operation(self, operation: Any, partition: str) -> Any:
        """An operation of RFC 6902, whose value stands where its pointer says."""
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            return self.texts(operation)
        keys = _keys(operation["path"])
        # A number may be a key or the place in a list, and says nothing there.
        wheres = [(partition, *keys), (partition, *(None if _is_place(key) else key for key in keys))]
        left = {name: self.texts(inner) for name, inner in operation.items()} | {"op": operation.get("op")}
        left |= {name: self._pointer(operation[name]) for name in ("path", "from") if name in operation}
        if "value" in operation:
            left["value"] = self._placed(operation["value"], wheres)
        return left

    def _placed(self, value: Any, wheres: Sequence[Where]) -> Any:
        if any(self.is_whole(where[:end]) for where in wheres for end in range(2, len(where) + 1)):
            return None if value is None else self.mark
        for where in dict.fromkeys(wheres):
            value = self.at(value, where)
        return value

    def _pointer(self, pointer: Any) -> str:
        """Where an operation points to; the channel keeps its name."""
        head, *rest = str(pointer).split("/", 2)
        channel, below = rest[:1], _keys("/" + rest[1]) if len(rest) > 1 else []
        return "/".join([head, *channel, *(self.text(key).replace("~", "~0").replace("/", "~1") for key in below)])

    def key(self, key: str, where: Where) -> str:
        """The name of something in a box that stands there. Names that differ stay different: each word has a number.
        Names of channels stay, and those that the engine gave.
        """
        if (len(where) == 1 and where[0]) or not self._holds_words(where):
            return key
        for number, word in enumerate(self._words):
            key = key.replace(word, f"{TEXT[:-1]} {number}]")
        return key

    def at(self, value: Any, where: Where) -> Any:
        """What stands at this place of a document."""
        if self.is_whole(where):
            return None if value is None else self.mark
        if isinstance(value, str) and _is_error_text(where):
            return self.error(value)
        if isinstance(value, str):
            noted = where[0] in _NOTES and _TEXTS.intersection(where[1:])
            return self.text(value) if noted or self._holds_words(where) else value
        if isinstance(value, dict):
            return {self.key(key, where): self.at(inner, (*where, key)) for key, inner in value.items()}
        return _inner(value, where, self.at)

    def _holds_words(self, where: Where) -> bool:
        """Whether what stands there came of a node or a person: not the engine's own notes, which are read by form."""
        if where[0] not in _NOTES:
            return True
        return any(_is_noted_value(where[:length]) for length in range(3, len(where) + 1))

    def is_whole(self, where: Where) -> bool:
        """Whether all that stands there goes."""
        return any(_is_at(where, path.parts) and _is_in(where[0], path.partitions) for path in self._paths)


Eraser = WholeEraser | PathEraser


def _forms(word: str) -> set[str]:
    """Return a word as it is, and as Python and JSON write it within quotes."""
    return {word, repr(word)[1:-1], ascii(word)[1:-1], json.dumps(word)[1:-1]}


def _keys(pointer: str) -> list[str]:
    """The keys of a pointer of RFC 6901."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def _is_place(key: str) -> bool:
    return key == "-" or key.isdigit()


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a text in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _may_be_cut(text: str) -> bool:
    """Whether a text was cut off where rows keep so many characters; one of which something was erased since has
    another length.
    """
    return len(text) in CUT or (TEXT in text and len(text) <= LONGEST_ERASED)


def _is_at(where: Where, parts: Sequence[str | int]) -> bool:
    """Whether a place is that of a path, or may be. What was written to a list may be its new items alone, so there
    the number of the item in the list says nothing; nor does it where it is not known.
    """
    if len(where) - 1 != len(parts):
        return False
    return all(
        have == want or (isinstance(want, int) and (have is None or (where[0] == "*" and at == 1)))
        for at, (have, want) in enumerate(zip(where[1:], parts, strict=True))
    )


def _is_in(partition: str, partitions: Sequence[str]) -> bool:
    return partition in partitions or (partition == "*" and any(one in STATE for one in partitions))


def _inner(value: Any, where: Where, at: Callable[[Any, Where], Any], first: int = 0) -> Any:
    """A box with each of its values erased; anything else as it is."""
    if isinstance(value, dict):
        return {key: at(inner, (*where, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [at(inner, (*where, first + n)) for n, inner in enumerate(value)]
    return value


def erased_document(document: Mapping[str, Any], eraser: Eraser) -> dict[str, Any]:
    """The document of a checkpoint, erased."""
    return {name: eraser.at(values, (name,)) for name, values in document.items()}


def erased_change(change: Iterable[Op], before: Any, eraser: Eraser) -> list[Op]:
    """The ops of a checkpoint, erased. `before` is the document before them, which tells where a list goes on; None
    where nobody needs it.
    """
    erased = []
    for op in change:
        erased.append(_erased_op(op, (), before, eraser))
        before = None if before is None else ops.apply(before, op)
    return erased


def _erased_op(op: Op, where: Where, before: Any, eraser: Eraser) -> Op:
    if where and eraser.is_whole(where):
        return op if op == ops.put(None) else ops.put(eraser.mark)
    kind = op["op"]
    if kind == "set":
        value = op["value"]
        return ops.put(eraser.at(value, where) if where else erased_document(value, eraser))
    if kind == "append":
        first = len(before) if isinstance(before, list) else 0
        return {"op": kind, "items": _inner(op["items"], where, eraser.at, first)}
    if kind == "insert":
        return {"op": kind, "items": [eraser.at(item, (*where, None)) for item in op["items"]]}
    if kind == "merge":
        return {"op": kind, "items": eraser.at(op["items"], where)}
    inside = before if isinstance(before, dict) else {}
    keys = {
        eraser.key(key, where) if where else key: _erased_op(inner, (*where, key), inside.get(key), eraser)
        for key, inner in op["keys"].items()
    }
    gone = {"gone": [eraser.key(key, where) for key in op["gone"]]} if where and "gone" in op else {}
    return {**op, "keys": keys, **gone}
