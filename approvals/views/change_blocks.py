"""What a change is shown as: a table of fields, a letter, the items of a list. Pure.

Each knows how many rows it has and makes only those that are asked for, so a page costs what stands on it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from approvals.views import text_pieces
from approvals.views.edit_script import Span, Steps, edit_script
from approvals.views.leaf import ABSENT, REMOVED, Leaf, label_of_path, leaf_of
from approvals.views.text_pieces import Piece
from approvals.views.value_types import NOTHING_DECLARED, ValueType
from checkpoints.core.visible_json import fingerprint, json_text
from orchestrator.engine.canonical import encode

STRETCH = 400
"""Characters of a letter that count as one row."""
ITEMS_FOLDED_FROM = 24
"""Items from which those that are unchanged are folded."""
BESIDE = 2
"""Unchanged items that stay on each side of a change."""
INLINE = 40
"""Characters from which an item that changed is shown once, with its changes marked."""
LONGEST_ITEM = 1600
NOW, PROPOSED = "Now", "Proposed"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One field with both values. `state` is same, changed, new or gone."""

    label: str
    state: str
    now: Leaf
    proposed: Leaf


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a list: same, in, out, or changed; or a gap, in which `gap` says what is folded."""

    state: str
    out: Leaf | None = None
    come: Leaf | None = None
    pieces: tuple[Piece, ...] = ()
    gap: str = ""


@dataclass(slots=True)
class Fields:
    """A table of fields. Without `heads` it has no column for what was."""

    entries: list[tuple[Path, Any, Any]] = field(default_factory=list)
    heads: tuple[str, str] | None = (NOW, PROPOSED)
    fresh: bool = False
    title: str = ""
    kind: str = "fields"
    declared: ValueType = NOTHING_DECLARED

    def __len__(self) -> int:
        return len(self.entries)

    def units(self, start: int, stop: int) -> list[Row]:
        return [_row(*entry, self.declared) for entry in self.entries[start:stop]]


class ManyFields:
    """The fields of a large object that differ, made as they are shown. It looks as the table of the others does."""

    kind, title = "fields", ""

    def __init__(
        self, path: Path, keys: Sequence[str], now: Mapping[str, Any], proposed: Mapping[str, Any], like: Fields
    ) -> None:
        self.heads, self.fresh = like.heads, like.fresh
        self._declared = like.declared
        self._path, self._keys, self._now, self._proposed = path, keys, now, proposed

    def __len__(self) -> int:
        return len(self._keys)

    def units(self, start: int, stop: int) -> list[Row]:
        return [self._row(key) for key in self._keys[start:stop]]

    def _row(self, key: str) -> Row:
        now, proposed = self._now.get(key, ABSENT), self._proposed.get(key, ABSENT)
        return _row((*self._path, key), now, proposed, self._declared)


Note = tuple[str, Leaf | None]
"""A sentence, and the value that it is about."""


@dataclass(slots=True)
class Letter:
    """A longer text. `notes` say what stands on the side that is no text."""

    title: str
    pieces: list[Piece]
    notes: list[Note] = field(default_factory=list)
    kind: str = "letter"

    def __len__(self) -> int:
        return -(-text_pieces.size_of(self.pieces) // STRETCH)

    def units(self, start: int, stop: int) -> list[Piece]:
        return text_pieces.stretch(self.pieces, start * STRETCH, stop * STRETCH)


class Items:
    """The items of a list that changed, with those beside them. `notes` say what stands on the side that has none."""

    kind = "items"

    def __init__(
        self,
        title: str,
        before: Sequence[Any],
        after: Sequence[Any],
        steps: Steps,
        notes: Sequence[Note] = (),
        *,
        declared: ValueType = NOTHING_DECLARED,
    ) -> None:
        self.title, self.notes = title, notes
        self._declared = declared.field("")
        self._before, self._after, self._steps = before, after, steps
        fold = max(len(before), len(after)) > ITEMS_FOLDED_FROM
        self._parts = list(_parts(edit_script(before, after, steps), fold))
        self._ends = list(accumulate(_size(part) for part in self._parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def units(self, start: int, stop: int) -> list[Item]:
        return [self._item(number) for number in range(start, min(stop, len(self)))]

    def _item(self, number: int) -> Item:
        place = bisect_right(self._ends, number)
        state, span = self._parts[place]
        at = number - (self._ends[place - 1] if place else 0)
        if state == "gap":
            said = f"{span.d - span.c:,} items are unchanged: {span.c + 1:,} to {span.d:,}"
            return Item("gap", gap=f"{said}, fingerprint {fingerprint(encode(self._after[span.c : span.d]))}")
        if state == "same":
            return Item("same", come=self._leaf(self._after[span.c + at]))
        if state == "changed":
            return _changed(self._before[span.a + at], self._after[span.c + at], self._steps, self._declared)
        if state == "out":
            return Item("out", out=self._leaf(self._before[span.a + at]))
        return Item("in", come=self._leaf(self._after[span.c + at]))

    def _leaf(self, value: Any) -> Leaf:
        return leaf_of(value, declared=self._declared)


Block = Fields | ManyFields | Letter | Items


def becomes(value: Any, declared: ValueType = NOTHING_DECLARED) -> Leaf:
    """A proposed value; that there is none any more is said."""
    return Leaf("nothing", REMOVED) if value is ABSENT else leaf_of(value, declared=declared)


def _row(path: Path, now: Any, proposed: Any, declared: ValueType) -> Row:
    """One field of a table. `declared` is the type of the whole value, into which the path leads."""
    here = declared.at(path)
    label, before, after = label_of_path(path) or "Value", leaf_of(now, declared=here), becomes(proposed, here)
    if now is ABSENT or now is None:
        return Row(label, "new", before, after)
    return Row(label, "gone" if proposed is ABSENT or proposed is None else "changed", before, after)


def _changed(now: Any, proposed: Any, steps: Steps, declared: ValueType) -> Item:
    """Two items of which one took the other's place. What is longer is shown once, with its changes marked."""
    out, come = leaf_of(now, declared=declared), leaf_of(proposed, declared=declared)
    if out.kind == come.kind and out.kind in ("text", "code") and max(len(out.text), len(come.text)) > INLINE:
        before, after = (side if isinstance(side, str) else json_text(side) for side in (now, proposed))
        found = text_pieces.folded(text_pieces.pieces(before, after, steps), longest=400, beside=60)
        return Item("changed", out, come, tuple(text_pieces.cut(found, LONGEST_ITEM)))
    return Item("changed", out, come)


def _parts(spans: Sequence[Span], fold: bool) -> Iterator[tuple[str, Span]]:
    """What is shown of each span, in order."""
    for number, span in enumerate(spans):
        if span.equal:
            yield from _equal(span, fold, first=number == 0, last=number == len(spans) - 1)
        elif span.b - span.a == span.d - span.c:
            yield "changed", span
        else:
            if span.b > span.a:
                yield "out", span
            if span.d > span.c:
                yield "in", span


def _equal(span: Span, fold: bool, *, first: bool, last: bool) -> Iterator[tuple[str, Span]]:
    head, tail = 0 if first else BESIDE, 0 if last else BESIDE
    if not fold or span.b - span.a <= head + tail + 1:
        yield "same", span
        return
    a, b, c, d = span.a + head, span.b - tail, span.c + head, span.d - tail
    if head:
        yield "same", Span(True, span.a, a, span.c, c)
    yield "gap", Span(True, a, b, c, d)
    if tail:
        yield "same", Span(True, b, span.b, d, span.d)


def _size(part: tuple[str, Span]) -> int:
    state, span = part
    if state == "gap":
        return 1
    return span.b - span.a if state == "out" else span.d - span.c
