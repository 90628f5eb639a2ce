"""The blocks that show a change: a table of fields, a letter, the items of a list.
Pure.

Each block knows how many rows it has and makes only the requested ones, so a page costs
no more than the rows on it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from approvals.display import text_pieces
from approvals.display.drawn_change import GONE, draw_change
from approvals.display.edit_script import Span, Steps, edit_script
from approvals.display.leaf import ABSENT, Leaf, label_of_path, leaf_of
from approvals.display.text_pieces import Piece
from approvals.display.value_types import NOTHING_DECLARED, ValueType
from checkpoints.core.visible_json import fingerprint, json_text
from orchestrator.engine.values.canonical import encode

STRETCH = 400
"""The number of characters of a letter that count as one row."""
ITEMS_FOLDED_FROM = 24
"""Length of a list from which unchanged items are folded."""
BESIDE = 2
"""The number of unchanged items that stay on each side of a change."""
INLINE = 40
"""Characters from which a changed item is shown once, with its changes marked."""
LONGEST_ITEM = 1600
"""The most characters of a changed item that count as one row; a longer one has
several.
"""
SURELY_SHORT = 128
"""The most bytes of an item's JSON with which both sides fit into one row even if each
byte is escaped, as six characters.
"""
MOST_COMPARED = 256 * 1024
"""The most characters of the changed items of a list that have several rows and are
compared word by word. Only the beginning and the end of the items after them are
compared, since all of them must be compared to find out how many rows they have.
"""
_MAY_BE_LONG = (str, dict, list)
NOW = "Now"
PROPOSED = "Proposed"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field with both values. `state` is same, changed, new or gone."""

    label: str
    state: str
    now: Leaf
    proposed: Leaf


@dataclass(frozen=True, slots=True)
class ListItem:
    """One item of a list: same, in, out, or changed; or a gap, in which `gap` describes
    what is folded. `goes_on`: it is another row of the item before it.
    """

    state: str
    out: Leaf | None = None
    come: Leaf | None = None
    pieces: tuple[Piece, ...] = ()
    gap: str = ""
    goes_on: bool = False


@dataclass(slots=True)
class FieldTable:
    """A table of fields. Without `heads` it has no column for old values."""

    entries: list[tuple[Path, Any, Any]] = field(default_factory=list)
    heads: tuple[str, str] | None = (NOW, PROPOSED)
    fresh: bool = False
    title: str = ""
    kind: str = "fields"
    declared: ValueType = NOTHING_DECLARED

    def __len__(self) -> int:
        return len(self.entries)

    def units(self, start: int, stop: int) -> list[FieldRow]:
        return [_row(*entry, self.declared) for entry in self.entries[start:stop]]


class ManyFields:
    """The differing fields of a large object, made when they are shown. It looks like
    the table of the other fields.
    """

    kind = "fields"
    title = ""

    def __init__(
        self,
        path: Path,
        keys: Sequence[str],
        now: Mapping[str, Any],
        proposed: Mapping[str, Any],
        like: FieldTable,
    ) -> None:
        self.heads = like.heads
        self.fresh = like.fresh
        self._declared = like.declared
        self._path = path
        self._keys = keys
        self._now = now
        self._proposed = proposed

    def __len__(self) -> int:
        return len(self._keys)

    def units(self, start: int, stop: int) -> list[FieldRow]:
        return [self._row(key) for key in self._keys[start:stop]]

    def _row(self, key: str) -> FieldRow:
        now = self._now.get(key, ABSENT)
        proposed = self._proposed.get(key, ABSENT)
        return _row((*self._path, key), now, proposed, self._declared)


Note = tuple[str, Leaf | None]
"""A sentence, and the value that it is about."""


@dataclass(slots=True)
class LongText:
    """A longer text. `notes` show the side that is not a text."""

    title: str
    pieces: list[Piece]
    notes: list[Note] = field(default_factory=list)
    kind: str = "letter"

    def __len__(self) -> int:
        return -(-text_pieces.size_of(self.pieces) // STRETCH)

    def units(self, start: int, stop: int) -> list[Piece]:
        return text_pieces.stretch(self.pieces, start * STRETCH, stop * STRETCH)


class Items:
    """The changed items of a list, with those beside them. `notes` show the side that
    has no items.
    """

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
        self.title = title
        self.notes = notes
        self._declared = declared.field("")
        self._before = before
        self._after = after
        self._steps = steps
        self._left_to_compare = MOST_COMPARED
        self._long_items: dict[int, ListItem] = {}
        # A short list is shown whole.
        fold = max(len(before), len(after)) > ITEMS_FOLDED_FROM
        self._parts: list[tuple[str, Span]] = []
        for state, span in _parts(edit_script(before, after, steps), fold):
            if state == "changed":
                self._parts += self._changed_parts(span)
            else:
                self._parts.append((state, span))
        # Where each part ends, so that a page finds its rows without making others.
        self._ends = list(accumulate(map(self._size, self._parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def units(self, start: int, stop: int) -> list[ListItem]:
        return [self._item(number) for number in range(start, min(stop, len(self)))]

    def _item(self, number: int) -> ListItem:
        place = bisect_right(self._ends, number)
        state, span = self._parts[place]
        if state == "gap":
            return ListItem("gap", gap=self._gap(span))
        # The place of the item within its part.
        at = number - (self._ends[place - 1] if place else 0)
        if state == "long":
            return _row_of_item(self._long_items[span.a], at)
        if state == "out":
            return ListItem("out", out=self._leaf(self._before[span.a + at]))
        new = self._after[span.c + at]
        if state == "changed":
            old = self._before[span.a + at]
            return _changed(old, new, self._steps, self._declared)
        return ListItem(state, come=self._leaf(new))

    def _changed_parts(self, span: Span) -> Iterator[tuple[str, Span]]:
        """Yield the parts of a span in which each item replaced the one at its
        position: each long item is a separate part.
        """
        start = 0
        length = span.b - span.a
        olds = self._before[span.a : span.b]
        news = self._after[span.c : span.d]
        for at, (old, new) in enumerate(zip(olds, news, strict=True)):
            # Millions of numbers are passed over here.
            if type(old) not in _MAY_BE_LONG or type(new) not in _MAY_BE_LONG:
                continue
            item = self._long_item(old, new)
            if item is None:
                continue
            self._long_items[span.a + at] = item
            if start < at:
                yield "changed", _within(span, start, at)
            yield "long", _within(span, at, at + 1)
            start = at + 1
        if start < length:
            yield "changed", _within(span, start, length)

    def _long_item(self, old: Any, new: Any) -> ListItem | None:
        """Return the changed item with all its pieces; None for one that surely fits
        into one row, or whose sides are shown apart.
        """
        if _is_surely_short(old) and _is_surely_short(new):
            return None
        size = _characters(old) + _characters(new)
        if size <= LONGEST_ITEM:
            return None
        is_compared = size <= self._left_to_compare
        if is_compared:
            self._left_to_compare -= size
        item = _changed(old, new, self._steps, self._declared, compared=is_compared)
        return item if item.pieces else None

    def _size(self, part: tuple[str, Span]) -> int:
        """Return the number of rows of a part."""
        state, span = part
        if state == "gap":
            return 1
        if state == "long":
            pieces = self._long_items[span.a].pieces
            return -(-text_pieces.size_of(pieces) // LONGEST_ITEM)
        return span.b - span.a if state == "out" else span.d - span.c

    def _gap(self, span: Span) -> str:
        hidden = self._after[span.c : span.d]
        return (
            f"{len(hidden):,} items are unchanged: {span.c + 1:,} to {span.d:,},"
            f" fingerprint {fingerprint(encode(hidden))}"
        )

    def _leaf(self, value: Any) -> Leaf:
        return leaf_of(value, declared=self._declared)


Block = FieldTable | ManyFields | LongText | Items


def becomes(value: Any) -> Leaf:
    """Return a proposed value as a leaf; one that is absent was removed."""
    return GONE if value is ABSENT else leaf_of(value)


def _row(
    path: Path,
    now: Any,
    proposed: Any,
    declared: ValueType,
) -> FieldRow:
    """Return one field of a table. `declared` is the type of the whole value, into
    which the path leads.
    """
    if now is ABSENT or now is None:
        state = "new"
    elif proposed is ABSENT or proposed is None:
        state = "gone"
    else:
        state = "changed"
    label = label_of_path(path) or "Value"
    change = draw_change(now, proposed, declared=declared.at(path))
    return FieldRow(label, state, change.before, change.after)


def _changed(
    now: Any,
    proposed: Any,
    steps: Steps,
    declared: ValueType,
    *,
    compared: bool = True,
) -> ListItem:
    """Return an item that replaced another. A longer one is shown once, with its
    changes marked; `compared` is that of `text_pieces.pieces`.
    """
    out = leaf_of(now, declared=declared)
    come = leaf_of(proposed, declared=declared)
    if not _is_shown_once(out, come):
        change = draw_change(now, proposed, declared=declared)
        return ListItem("changed", change.before, change.after)
    # A text with marks reads better than two long texts side by side.
    old_text = _as_text(now, out.kind)
    new_text = _as_text(proposed, come.kind)
    pieces = text_pieces.pieces(old_text, new_text, steps, compared=compared)
    pieces = text_pieces.folded(pieces, longest=400, beside=60)
    return ListItem("changed", out, come, tuple(pieces))


def _is_shown_once(out: Leaf, come: Leaf) -> bool:
    if out.kind != come.kind:
        return False
    # Side by side, quotes are easier to see, but two parts do not show every change.
    if out.kind == "quoted":
        return bool(out.rest or come.rest)
    if out.kind not in ("text", "code"):
        return False
    return max(len(out.text), len(come.text)) > INLINE


def _as_text(value: Any, kind: str) -> str:
    if not isinstance(value, str):
        return json_text(value)
    return f'"{value}"' if kind == "quoted" else value


def _is_surely_short(value: Any) -> bool:
    """Return whether half a row has room for a text or JSON, without drawing it."""
    if isinstance(value, str):
        return len(value) <= SURELY_SHORT
    return len(encode(value)) <= SURELY_SHORT


def _characters(value: Any) -> int:
    """Return how many characters a text or JSON has where it is shown."""
    # Two quotes may stand around it.
    return len(_as_text(value, "quoted"))


def _row_of_item(item: ListItem, number: int) -> ListItem:
    """Return one row of an item that has several, the first being 0."""
    start = number * LONGEST_ITEM
    pieces = text_pieces.stretch(item.pieces, start, start + LONGEST_ITEM)
    return replace(item, pieces=tuple(pieces), goes_on=number > 0)


def _within(span: Span, start: int, stop: int) -> Span:
    """Return the items of a span from `start` to `stop`, on both sides."""
    return Span(
        span.equal,
        span.a + start,
        span.a + stop,
        span.c + start,
        span.c + stop,
    )


def _parts(spans: Sequence[Span], fold: bool) -> Iterator[tuple[str, Span]]:
    """Yield the parts of each span, in order."""
    last = len(spans) - 1
    for number, span in enumerate(spans):
        if span.equal:
            yield from _equal(span, fold, first=number == 0, last=number == last)
        # As many items as before: each replaced the one at its position.
        elif span.b - span.a == span.d - span.c:
            yield "changed", span
        else:
            if span.b > span.a:
                yield "out", span
            if span.d > span.c:
                yield "in", span


def _equal(
    span: Span,
    fold: bool,
    *,
    first: bool,
    last: bool,
) -> Iterator[tuple[str, Span]]:
    """Yield an equal span, its middle folded. The `first` and the `last` span of a list
    have a change on one side only.
    """
    head = 0 if first else BESIDE
    tail = 0 if last else BESIDE
    # A gap takes a row, so folding a single item saves nothing.
    if not fold or span.b - span.a <= head + tail + 1:
        yield "same", span
        return
    gap = Span(True, span.a + head, span.b - tail, span.c + head, span.d - tail)
    if head:
        yield "same", Span(True, span.a, gap.a, span.c, gap.c)
    yield "gap", gap
    if tail:
        yield "same", Span(True, gap.b, span.b, gap.d, span.d)
