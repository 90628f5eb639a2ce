"""Erasing the values of a run: all of them, or those at paths of its state. Pure.

Both erasers have one method for each kind of value that rows hold. A change of a
checkpoint is erased op by op, so that erased changes still produce the erased state.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from checkpoints.core.state_paths import PARTITIONS, STATE, StatePath
from checkpoints.core.tombstone import TEXT, tombstone
from checkpoints.core.visible_text import CUT
from orchestrator.engine.graphs.call import is_authority
from orchestrator.engine.values import ops
from orchestrator.engine.values.ops import Op

Where = tuple[Any, ...]
"""The place of a value in a document: partition, channel, keys and indices; None for an
unknown index. The partition `*` stands for any in which the channel may be.
"""

SHORTEST_WORD = 4
"""The fewest characters of a text that is searched for within other texts; a shorter
one is erased only at its path.
"""
LONGEST_ERASED = max(CUT) // SHORTEST_WORD * len(TEXT)
"""The length that a text which was cut off may have once each word in it was erased."""
_TEXTS = frozenset({"message", "why", "path", "warnings", "label", "reads"})
"""Keys of the engine's notes whose texts may contain values of a node."""
ERROR_TEXTS = frozenset({"message", "why", "error", "traceback", "cure"})
"""Keys of the texts of an error. Libraries quote values there in forms that no search
finds: shortened in the middle, escaped, as Python writes them.
"""
_NAMES_IN_ERROR = frozenset(
    {"code", "type", "node", "task", "version", "fingerprint", "run", "checkpoint"}
)
"""Keys of an error whose values are names and ids, which stay."""
_NOTES = frozenset({"frontier", "open", "diagnostics"})
"""Partitions that hold the engine's notes."""

_PARTS_OF_OPEN = frozenset(
    {
        "superstep",
        "results",
        "asked",
        "tries",
        "due",
        "without",
        "passed",
        "stored",
        "overlay",
    }
)
_PARTS_OF_FRONTIER = frozenset(
    {
        "tokens",
        "errors",
        "visits",
        "sends",
        "waiting",
        "rejected",
        "visited",
        "written",
    }
)
"""The parts of both notes that keep their form. Any other part is erased as a whole, so
that a new one cannot be forgotten here.
"""


class WholeEraser:
    """Erases every value of a run. Names, numbers of rows, hashes, and who did what
    when, are not values.
    """

    counts = False

    def __init__(self, record: Any) -> None:
        self.mark = tombstone(record)

    def value(self, channel: str, value: Any) -> Any:
        """Erase the value of a channel, or of a write to it."""
        return self.opaque(value)

    def opaque(self, value: Any) -> Any:
        """Erase a value whose form nothing depends on."""
        if value is None:
            return None
        return self.mark

    def texts(self, value: Any) -> Any:
        """Erase the texts and numbers in a value whose form pages depend on."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            erased = {}
            for key, inner in value.items():
                erased[key] = self.texts(inner)
            return erased
        if isinstance(value, list):
            return [self.texts(item) for item in value]
        if value is None or isinstance(value, bool):
            return value
        return self.mark

    def text(self, text: str) -> str:
        """Erase a text that must stay a text."""
        if not text:
            return text
        return TEXT

    def error(self, value: Any) -> Any:
        """Erase an error, as any value whose form pages depend on."""
        return self.texts(value)

    def input(self, value: Any) -> Any:
        """Erase the input that the run was started with."""
        return self.mark

    def at(self, value: Any, where: Where) -> Any:
        """Erase the value at this place of a document."""
        if self.is_whole(where):
            return self.opaque(value)
        if isinstance(value, str):
            if _is_text_in_notes(where):
                return self.text(value)
            return value
        return _erased_inside(value, where, self.at)

    def patch(self, value: Any) -> Any:
        """Erase the patch of a fork."""
        return self.opaque(value)

    def key(self, key: str, where: Where) -> str:
        """Return the key of a dict at this place as it is: names are not values."""
        return key

    def is_whole(self, where: Where) -> bool:
        """Return whether everything at this place is erased."""
        if len(where) == 2 and where[0] in STATE:
            return True
        return _is_value_in_notes(where) or _is_unknown_part_of_notes(where)


def _is_value_in_notes(where: Where) -> bool:
    """Return whether the engine's notes hold a value of a node or a person at this
    place.
    """
    match where:
        case ("open", "results", _, "output", "writes", _, "value" | "question"):
            return True
        case ("open", "results", _, "output", "sends", _, 1):
            return True
        case ("open", "results" | "passed", _, "call", "value"):
            return True
        case ("open", "stored", "input"):
            return True
        case ("open", "overlay", _, _, "value"):
            return True
        case ("frontier", "sends", _, 1, _):
            return True
        case ("frontier", "waiting", _, _, "sends", _, 1):
            return True
        case ("frontier", "waiting", _, _, "payload"):
            return True
    return False


def _is_text_in_notes(where: Where) -> bool:
    """Return whether the engine's notes hold a text at this place that may contain
    values of a node.
    """
    return where[0] in _NOTES and not _TEXTS.isdisjoint(where[1:])


def _is_error_text(where: Where) -> bool:
    """Return whether the engine's notes hold a text of an error at this place."""
    if where[0] not in _NOTES:
        return False
    return where[-1] in ERROR_TEXTS or where[:2] == ("diagnostics", "warnings")


def _is_unknown_part_of_notes(where: Where) -> bool:
    match where:
        case ("open", part):
            return part not in _PARTS_OF_OPEN
        case ("frontier", part):
            return part not in _PARTS_OF_FRONTIER
    return False


class PathEraser:
    """Erases the values at these paths of a run's state, and every other occurrence of
    the `words` that stood there.
    """

    counts = True
    """Paths name items of lists by number, so changes are erased with the state before
    them.
    """

    def __init__(
        self,
        record: Any,
        paths: Sequence[StatePath],
        words: Iterable[str],
    ) -> None:
        self.mark = tombstone(record)
        self._paths = paths
        forms: set[str] = set()
        for word in words:
            if len(word) >= SHORTEST_WORD:
                forms |= _forms(word)
        # The longest first: a word that contains another one is erased as a whole. In one
        # order for all processes, since keys are numbered by it.
        self._words = sorted(forms, key=lambda word: (-len(word), word))

    def value(self, channel: str, value: Any) -> Any:
        """Erase the value of a channel, or of a write to it."""
        if is_authority(channel) and isinstance(value, dict):
            return self._acted_on(value)
        return self.at(value, ("*", channel))

    def _acted_on(self, value: dict[str, Any]) -> dict[str, Any]:
        """Erase the authority of a node: each write in it like one of its channel."""
        writes: list[dict[str, Any]] = []
        for write in value.get("writes", ()):
            erased = self.value(write["channel"], write["value"])
            writes.append({**write, "value": erased})
        return {**value, "writes": writes}

    def opaque(self, value: Any) -> Any:
        """Erase the words in a value whose form nothing depends on."""
        return self.texts(value)

    def texts(self, value: Any) -> Any:
        """Erase the words in each text of a value outside the state."""
        return self.at(value, ("",))

    def text(self, text: str) -> str:
        """Erase the words in a text."""
        erased = ""
        end_of_last = 0
        for start, end in _joined(self._spans_of_words(text)):
            erased += text[end_of_last:start] + TEXT
            end_of_last = end
        return erased + text[end_of_last:]

    def error(self, value: Any) -> Any:
        """Erase every text of an error as a whole; its names, ids and numbers stay."""
        if isinstance(value, str):
            if not value:
                return value
            return TEXT
        if isinstance(value, dict):
            erased = {}
            for key, inner in value.items():
                if key in _NAMES_IN_ERROR:
                    erased[key] = inner
                else:
                    erased[key] = self.error(inner)
            return erased
        if isinstance(value, list):
            return [self.error(item) for item in value]
        return value

    def _spans_of_words(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each word in a text; also of the beginning of a word
        at its end, where the text may be cut off.
        """
        for word in self._words:
            start = text.find(word)
            while start >= 0:
                end = start + len(word)
                yield start, end
                start = text.find(word, end)

        # At a cut only the beginning of a word is there.
        if not _may_be_cut(text):
            return
        # From the left, so that the longest ending that begins a word is erased.
        for start in range(len(text) - SHORTEST_WORD + 1):
            ending = text[start:]
            if any(word.startswith(ending) for word in self._words):
                yield start, len(text)
                return

    def input(self, value: Any) -> Any:
        """Erase the input that the run was started with."""
        return self.at(value, ("input",))

    def patch(self, value: Any) -> Any:
        """Erase the patch of a fork: partitions, each of them with values or
        operations; or channels.
        """
        if not isinstance(value, dict) or not value.keys() <= set(PARTITIONS):
            return self.at(value, ("*",))
        erased = {}
        for name, part in value.items():
            erased[name] = self._partition(part, name)
        return erased

    def _partition(self, part: Any, name: str) -> Any:
        if isinstance(part, list):
            return [self._operation(operation, name) for operation in part]
        return self.at(part, (name,))

    def _operation(self, operation: Any, partition: str) -> Any:
        """Erase an operation of RFC 6902, whose pointer is the place of its value."""
        if not isinstance(operation, dict):
            return self.texts(operation)
        pointer = operation.get("path")
        if not isinstance(pointer, str):
            return self.texts(operation)

        erased = {name: self.texts(inner) for name, inner in operation.items()}
        # The operation must still be one of the RFC.
        erased["op"] = operation.get("op")
        for name in ("path", "from"):
            if name in operation:
                erased[name] = self._pointer(operation[name])
        if "value" in operation:
            places = _places_of(pointer, partition)
            erased["value"] = self._at_any(operation["value"], places)
        return erased

    def _at_any(self, value: Any, places: Sequence[Where]) -> Any:
        """Erase a value that may stand at any of these places."""
        if any(self._is_within_whole(where) for where in places):
            return self._marked(value)
        for where in dict.fromkeys(places):
            value = self.at(value, where)
        return value

    def _is_within_whole(self, where: Where) -> bool:
        """Return whether everything here, or around here in a channel, is erased."""
        # A path has a channel at least, so nothing is erased above it.
        lengths = range(2, len(where) + 1)
        return any(self.is_whole(where[:length]) for length in lengths)

    def _pointer(self, pointer: Any) -> str:
        """Erase the words in the pointer of an operation; the channel keeps its name."""
        before, *channel_and_keys = str(pointer).split("/", 2)
        parts = [before, *channel_and_keys[:1]]
        for joined_keys in channel_and_keys[1:]:
            for key in _keys_of(f"/{joined_keys}"):
                parts.append(_escaped(self.text(key)))
        return "/".join(parts)

    def key(self, key: str, where: Where) -> str:
        """Erase the words in a key of a dict at this place. Keys that differ stay
        different: each word has a number. Names of channels stay, and names that the
        engine gave.
        """
        is_partition = len(where) == 1 and where[0] != ""
        if is_partition or not self._holds_words(where):
            return key
        for number, word in enumerate(self._words):
            key = key.replace(word, f"{TEXT[:-1]} {number}]")
        return key

    def at(self, value: Any, where: Where) -> Any:
        """Erase the value at this place of a document."""
        if self.is_whole(where):
            return self._marked(value)
        if isinstance(value, str):
            return self._text_at(value, where)
        if isinstance(value, dict):
            erased = {}
            for key, inner in value.items():
                erased[self.key(key, where)] = self.at(inner, (*where, key))
            return erased
        return _erased_inside(value, where, self.at)

    def _marked(self, value: Any) -> Any:
        if value is None:
            return None
        return self.mark

    def _text_at(self, text: str, where: Where) -> Any:
        # Before the search for words, which misses values in texts of errors.
        if _is_error_text(where):
            return self.error(text)
        if _is_text_in_notes(where) or self._holds_words(where):
            return self.text(text)
        return text

    def _holds_words(self, where: Where) -> bool:
        """Return whether the value at this place is from a node or a person, and not
        one of the engine's own notes, which are parsed by their form.
        """
        if where[0] not in _NOTES:
            return True
        # The places of values in the notes have three parts or more.
        lengths = range(3, len(where) + 1)
        return any(_is_value_in_notes(where[:length]) for length in lengths)

    def is_whole(self, where: Where) -> bool:
        """Return whether everything at this place is erased."""
        return any(_may_be_at(where, path) for path in self._paths)


Eraser = WholeEraser | PathEraser


def _forms(word: str) -> set[str]:
    """Return a word as it is, and as Python and JSON write it within quotes."""
    return {
        word,
        repr(word)[1:-1],
        ascii(word)[1:-1],
        json.dumps(word)[1:-1],
    }


def _keys_of(pointer: str) -> list[str]:
    """Return the keys of a pointer of RFC 6901."""
    keys = []
    for escaped_key in pointer.split("/")[1:]:
        # In this order: `~01` is the text `~1`.
        key = escaped_key.replace("~1", "/")
        keys.append(key.replace("~0", "~"))
    return keys


def _escaped(key: str) -> str:
    """Return a key as a pointer of RFC 6901 contains it."""
    return key.replace("~", "~0").replace("/", "~1")


def _places_of(pointer: str, partition: str) -> list[Where]:
    """Return the places in a partition to which a pointer may lead: a number in it is a
    key of a dict, or the index of an item, which is unknown once items moved.
    """
    keys = _keys_of(pointer)
    keys_or_none = [None if _may_be_index(key) else key for key in keys]
    return [(partition, *keys), (partition, *keys_or_none)]


def _may_be_index(key: str) -> bool:
    return key == "-" or key.isdigit()


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return parts of a text in order, with those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            last_start, last_end = joined[-1]
            joined[-1] = (last_start, max(last_end, end))
        else:
            joined.append((start, end))
    return joined


def _may_be_cut(text: str) -> bool:
    """Return whether a text may have been cut off at the most characters that a row
    holds. A text in which something was erased since has another length.
    """
    if len(text) in CUT:
        return True
    return TEXT in text and len(text) <= LONGEST_ERASED


def _may_be_at(where: Where, path: StatePath) -> bool:
    """Return whether a place is that of a path, as far as it is known."""
    if len(where) - 1 != len(path.parts):
        return False
    for depth, (key, part) in enumerate(zip(where[1:], path.parts, strict=True)):
        if key == part:
            continue
        # A write to a list may have only its new items, so their numbers in the write
        # say nothing about their numbers in the list.
        is_number_unknown = key is None or (where[0] == "*" and depth == 1)
        if not (isinstance(part, int) and is_number_unknown):
            return False
    return _may_be_in(where[0], path.partitions)


def _may_be_in(partition: str, partitions: Sequence[str]) -> bool:
    if partition in partitions:
        return True
    return partition == "*" and any(name in STATE for name in partitions)


def _erased_inside(
    value: Any,
    where: Where,
    at: Callable[[Any, Where], Any],
    first: int = 0,
) -> Any:
    """Return a dict or a list with each of its values erased; any other value
    unchanged. `first` is the index of the first item of a list.
    """
    if isinstance(value, dict):
        erased = {}
        for key, inner in value.items():
            erased[key] = at(inner, (*where, key))
        return erased
    if isinstance(value, list):
        erased_items = []
        for index, item in enumerate(value, first):
            erased_items.append(at(item, (*where, index)))
        return erased_items
    return value


def erased_document(
    document: Mapping[str, Any],
    eraser: Eraser,
) -> dict[str, Any]:
    """Return the document of a checkpoint, erased."""
    erased = {}
    for name, values in document.items():
        erased[name] = eraser.at(values, (name,))
    return erased


def erased_change(
    change: Iterable[Op],
    before: Any,
    eraser: Eraser,
) -> list[Op]:
    """Return the ops of a checkpoint, erased. `before` is the document before them,
    which has the lengths of the lists that go on; None if the eraser does not need it.
    """
    erased = []
    for op in change:
        erased.append(_erased_op(op, (), before, eraser))
        # The next op may append to a list that this one made longer.
        if before is not None:
            before = ops.apply(before, op)
    return erased


def _erased_op(
    op: Op,
    where: Where,
    before: Any,
    eraser: Eraser,
) -> Op:
    """Return an op on the value at this place, erased; the place of the whole document
    is empty.
    """
    if where and eraser.is_whole(where):
        # A value that is None has nothing to erase, in a change as in a document.
        if op == ops.put(None):
            return op
        return ops.put(eraser.mark)

    match op["op"]:
        case "set" if where:
            return ops.put(eraser.at(op["value"], where))
        case "set":
            return ops.put(erased_document(op["value"], eraser))
        case "append" | "insert" | "merge" as kind:
            items = _erased_items(op, where, before, eraser)
            return {"op": kind, "items": items}
    return _erased_within(op, where, before, eraser)


def _erased_items(
    op: Op,
    where: Where,
    before: Any,
    eraser: Eraser,
) -> Any:
    """Return the items that an op adds to the value at this place, erased."""
    items = op["items"]
    if op["op"] == "merge":
        return eraser.at(items, where)
    if op["op"] == "append":
        # New items are numbered on from those that the list has.
        first = len(before) if isinstance(before, list) else 0
        return _erased_inside(items, where, eraser.at, first)
    # Where new items come to stand in a sorted set is not known.
    unknown = (*where, None)
    return [eraser.at(item, unknown) for item in items]


def _erased_within(
    op: Op,
    where: Where,
    before: Any,
    eraser: Eraser,
) -> Op:
    """Return an op on keys of a dict, erased."""
    keys = {}
    for key, inner in op["keys"].items():
        inner_before = None
        if isinstance(before, dict):
            inner_before = before.get(key)
        erased_inner = _erased_op(inner, (*where, key), inner_before, eraser)
        keys[_erased_key(key, where, eraser)] = erased_inner

    erased = {**op, "keys": keys}
    if "gone" in op:
        erased["gone"] = [_erased_key(key, where, eraser) for key in op["gone"]]
    return erased


def _erased_key(
    key: str,
    where: Where,
    eraser: Eraser,
) -> str:
    # The keys of a whole document are partitions, which keep their names.
    if not where:
        return key
    return eraser.key(key, where)
