"""The changes of a proposal: fields of objects, words of texts, items of lists, page by
page. Pure.

Two values that differ never look the same here, and no difference is left out: equal
parts are folded, parts that are too long are cut with their length and fingerprint, and
everything else has its page. The proposal is compared with the caller's `now`; a
value's own account of what it changes is shown as such, and only where `change` names
it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from approvals.display import text_pieces
from approvals.display.change_blocks import (
    NOW,
    PROPOSED,
    Block,
    FieldTable,
    Items,
    LongText,
    ManyFields,
    Note,
    Path,
    becomes,
)
from approvals.display.edit_script import Steps
from approvals.display.leaf import ABSENT, is_short_list, label_of_path, leaf_of
from approvals.display.value_types import NOTHING_DECLARED, ValueType
from checkpoints.core.visible_json import fingerprint
from orchestrator.engine.values.canonical import encode
from orchestrator.engine.values.ops import same

LETTER = 120
"""The number of characters from which a text is shown as a letter with marked words."""
PAGE = 40
"""The most rows, items, and stretches of a letter on one page."""
FOLDED_FROM = 8000
"""The number of characters from which the unchanged parts of a letter are folded."""
MANY = 2000
"""The number of fields of two objects from which unchanged ones are only counted."""
DEEPEST = 4
"""The most keys of a path; deeper values are shown as JSON."""
_BOXES = (dict, list)


@dataclass(slots=True)
class ShownRows:
    """The rows of a block that a page shows."""

    block: Block
    units: Sequence[Any]
    first: bool


@dataclass(slots=True)
class Comparison:
    """A change in blocks. `lead` stands above them; `same` are equal fields, and
    `unlisted` counts the others.
    """

    blocks: list[Block] = field(default_factory=list)
    same: FieldTable = field(default_factory=lambda: FieldTable(heads=None))
    lead: list[Note] = field(default_factory=list)
    unlisted: str = ""

    @property
    def pages(self) -> int:
        rows = sum(len(block) for block in self.blocks)
        return max(1, -(-rows // PAGE))

    def page(self, number: int) -> list[ShownRows]:
        """Return the parts of that page, the first being 0."""
        start = number * PAGE
        stop = start + PAGE
        parts = []
        at = 0
        for block in self.blocks:
            first = max(start - at, 0)
            last = min(stop - at, len(block))
            if first < last:
                parts.append(ShownRows(block, block.units(first, last), first == 0))
            at += len(block)
        return parts


def compare(
    now: Any,
    proposed: Any,
    *,
    adds: bool = False,
    change: Sequence[str] = (),
    steps: Steps | None = None,
    heads: tuple[str, str] = (NOW, PROPOSED),
    declared: ValueType = NOTHING_DECLARED,
) -> Comparison:
    """Return the change from `now` to `proposed`. `adds`: the value is combined with
    the existing one.

    `heads` name the two values. `change` names the two keys under which the value
    itself states what was there and what replaces it. `declared` is the type of both
    values.
    """
    builder = _Builder(steps or Steps(), declared)
    builder.table.heads = heads
    if adds:
        builder.add(now, proposed, change)
    elif states_change(proposed, change):
        builder.state_change(proposed, change)
        builder.lead.append(("There now:", leaf_of(now, declared=declared)))
    else:
        builder.table.fresh = now is None
        builder.walk((), now, proposed)
    return builder.comparison()


def alone(value: Any, *, declared: ValueType = NOTHING_DECLARED) -> Comparison:
    """Return a comparison of a value that is compared with nothing."""
    builder = _Builder(Steps(), declared)
    builder.flat((), value)
    return builder.comparison()


def is_long(value: Any) -> bool:
    """Return whether a value is a text that is shown as a letter."""
    return isinstance(value, str) and (len(value) > LETTER or "\n" in value)


def states_change(value: Any, change: Sequence[str]) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value holds both objects of the change that it states. `change`
    names their keys.
    """
    if len(change) != 2 or not isinstance(value, Mapping):
        return False
    return all(isinstance(value.get(key), Mapping) for key in change)


class _Builder:
    """A comparison under construction: tables first, then letters and lists."""

    def __init__(self, steps: Steps, declared: ValueType) -> None:
        self.steps = steps
        self.declared = declared
        self.table = FieldTable(declared=declared)
        self.others = FieldTable(heads=None, declared=declared)
        self.blocks: list[Block] = []
        self.same = FieldTable(heads=None, declared=declared)
        self.lead: list[Note] = []
        self.unlisted = ""

    def comparison(self) -> Comparison:
        tables: list[Block] = [
            table for table in (self.table, self.others) if table.entries
        ]
        return Comparison([*tables, *self.blocks], self.same, self.lead, self.unlisted)

    def add(
        self,
        now: Any,
        proposed: Any,
        change: Sequence[str],
    ) -> None:
        """Show a value that the channel's reducer combines with the existing one."""
        if isinstance(proposed, list):
            self._add_items(now, proposed, change)
            return
        there = leaf_of(now)
        self.lead.append(("It is combined with what was there when proposed:", there))
        # Only the reducer knows the result, so both values are shown as they are.
        self.table.heads = ("Is there already", PROPOSED)
        if proposed and isinstance(proposed, Mapping) and isinstance(now, Mapping):
            for key, value in proposed.items():
                self.walk((key,), now.get(key, ABSENT), value)
        elif is_long(proposed):
            self.flat((), proposed)
        else:
            self.table.entries.append(((), now, proposed))

    def _add_items(
        self,
        now: Any,
        proposed: list[Any],
        change: Sequence[str],
    ) -> None:
        self._lead_to_items(now, len(proposed))
        # From here on the fields shown are those of one item.
        of_item = self.declared.field("")
        self.table.declared = of_item
        self.others.declared = of_item
        only: Any = proposed[0] if len(proposed) == 1 else None
        if states_change(only, change):
            self.state_change(only, change)
        elif isinstance(only, Mapping) and only:
            for key, value in only.items():
                self.flat((key,), value)
        elif proposed:
            self.blocks.append(
                Items("", [], proposed, self.steps, declared=self.declared)
            )

    def _lead_to_items(self, now: Any, count: int) -> None:
        items = "1 item" if count == 1 else f"{count:,} items"
        if now in (None, []):
            nothing = "empty" if now == [] else "not set"
            self.lead.append((f"Adds {items} (the list was {nothing}).", None))
        else:
            there = leaf_of(now, declared=self.declared)
            self.lead.append(
                (f"Adds {items} to what was there when it was proposed:", there)
            )

    def state_change(self, value: Mapping[str, Any], change: Sequence[str]) -> None:
        """Show the value's own account of a change, labelled as such, and its other
        fields below.
        """
        before, after = change
        # The reader must not take the proposal's own words for a comparison.
        self.lead.append(("What changes, as stated in the proposal:", None))
        self.table.heads = ("Before", "After")
        self.table.declared = self.table.declared.field(after)
        self.walk((), value[before], value[after])
        self.others.title = "Other fields"
        for key, inner in value.items():
            if key not in change:
                self.flat((key,), inner)

    def walk(
        self,
        path: Path,
        now: Any,
        proposed: Any,
    ) -> None:
        """Add the differences between two values to the blocks that show them."""
        if now is not ABSENT and proposed is not ABSENT and same(now, proposed):
            self._add_unchanged(path, proposed)
        elif _is_entered(path, now, proposed):
            before = now if isinstance(now, Mapping) else {}
            after = proposed if isinstance(proposed, Mapping) else {}
            self._enter(path, before, after)
        elif _are_items(now, proposed, whole=not path):
            self.blocks.append(self._items(path, now, proposed))
        elif _is_letter(now, proposed):
            notes = self._notes(now, proposed)
            self.blocks.append(self._letter(label_of_path(path), now, proposed, notes))
        else:
            self.table.entries.append((path, now, proposed))

    def _items(
        self,
        path: Path,
        now: Any,
        proposed: Any,
    ) -> Items:
        # One side may be no list; a note says whether it is null, absent or empty.
        before = now if isinstance(now, list) else []
        after = proposed if isinstance(proposed, list) else []
        return Items(
            label_of_path(path),
            before,
            after,
            self.steps,
            self._notes(now, proposed),
            declared=self.table.declared.at(path),
        )

    def _enter(
        self,
        path: Path,
        now: Mapping[str, Any],
        proposed: Mapping[str, Any],
    ) -> None:
        if len(now) + len(proposed) > MANY:
            self._enter_many(path, now, proposed)
            return
        for key, value in proposed.items():
            self.walk((*path, key), now.get(key, ABSENT), value)
        # The fields of the proposal come first, in its order; then the removed ones.
        for key, old in now.items():
            if key not in proposed:
                self.walk((*path, key), old, ABSENT)

    def _enter_many(
        self,
        path: Path,
        now: Mapping[str, Any],
        proposed: Mapping[str, Any],
    ) -> None:
        """Add a row for each field that differs, however large its values, and only
        count the others.
        """
        # If both have the same keys in the same order, as canonical JSON has, nothing
        # need be looked up.
        is_aligned = list(now) == list(proposed)
        olds: Collection[Any] = now.values()
        if not is_aligned:
            olds = [now.get(key, ABSENT) for key in proposed]
        changed = _changed_keys(proposed, olds)
        unchanged = len(proposed) - len(changed)
        if not is_aligned:
            changed += [key for key in now if key not in proposed]
        if changed:
            self.blocks.append(ManyFields(path, changed, now, proposed, self.table))
        # Too many to list; with the fingerprint two people can compare them.
        if unchanged:
            where = f" of {label_of_path(path)}" if path else ""
            self.unlisted += (
                f"{unchanged:,} fields{where} are unchanged, fingerprint"
                f" {fingerprint(encode(proposed))}. "
            )

    def _add_unchanged(self, path: Path, value: Any) -> None:
        for inner_path, inner in _fields(path, value):
            self.same.entries.append((inner_path, ABSENT, inner))

    def flat(self, path: Path, value: Any) -> None:
        """Show a value that is compared with nothing, by its fields."""
        for inner_path, inner in _fields(path, value):
            if _are_items(ABSENT, inner, whole=False):
                title = self._title_of_other(inner_path)
                declared = self.others.declared.at(inner_path)
                self.blocks.append(
                    Items(title, [], inner, self.steps, declared=declared)
                )
            elif is_long(inner):
                title = self._title_of_other(inner_path)
                self.blocks.append(self._letter(title, "", inner, []))
            else:
                self.others.entries.append((inner_path, ABSENT, inner))

    def _title_of_other(self, path: Path) -> str:
        return ": ".join(filter(None, (self.others.title, label_of_path(path))))

    def _notes(self, now: Any, proposed: Any) -> list[Note]:
        """Return the side of a letter or a list that has nothing to show, as a note."""
        now_head, proposed_head = self.table.heads or (NOW, PROPOSED)
        notes: list[Note] = []
        is_new = now is ABSENT and self.table.fresh
        if not now and not is_new:
            notes.append((f"{now_head}:", leaf_of(now)))
        if not proposed:
            notes.append((f"{proposed_head}:", becomes(proposed)))
        return notes

    def _letter(
        self,
        title: str,
        now: Any,
        proposed: Any,
        notes: list[Note],
    ) -> LongText:
        before = now if isinstance(now, str) else ""
        after = proposed if isinstance(proposed, str) else ""
        pieces = text_pieces.pieces(before, after, self.steps)
        if len(before) + len(after) > FOLDED_FROM:
            pieces = text_pieces.folded(pieces, longest=1200, beside=300)
        return LongText(title, pieces, notes)


def _is_entered(
    path: Path,
    now: Any,
    proposed: Any,
) -> bool:
    """Return whether the fields of an object are shown one by one: beside those of
    another, or beside nothing.
    """
    if len(path) >= DEEPEST:
        return False
    if isinstance(now, Mapping) and isinstance(proposed, Mapping):
        # Inside a value, an empty object is shown as "no fields".
        return not path or bool(now and proposed)
    nothing: Any = ABSENT if path else None
    if now is nothing:
        return _has_fields(proposed)
    return bool(path) and proposed is ABSENT and _has_fields(now)


def _has_fields(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _changed_keys(proposed: Mapping[str, Any], olds: Collection[Any]) -> list[str]:
    """Return the keys of the proposal whose values differ from `olds`, which are in the
    same order.
    """
    changed = []
    for (key, new), old in zip(proposed.items(), olds, strict=True):
        # Python takes 1, 1.0 and true for equal; JSON does not, and what is inside
        # lists and objects must be compared as JSON too.
        if old != new or type(old) is not type(new):
            changed.append(key)
            continue
        if type(new) in _BOXES and not same(old, new):
            changed.append(key)
    return changed


def _fields(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the fields of an object, and of those inside; any other value, or a large
    object, as a whole.
    """
    if isinstance(value, Mapping) and 0 < len(value) <= PAGE and len(path) < DEEPEST:
        for key, inner in value.items():
            yield from _fields((*path, key), inner)
    else:
        yield path, value


def _are_items(
    now: Any,
    proposed: Any,
    *,
    whole: bool,
) -> bool:
    """Return whether two values are shown item by item: two lists, or a list and
    nothing. Short ones fit into a cell.
    """
    sides = (now, proposed)
    # An empty list has no items that could be shown.
    lists = [side for side in sides if isinstance(side, list) and side]
    if not lists:
        return False
    if not all(isinstance(side, list) or _is_nothing(side) for side in sides):
        return False
    return whole or not all(is_short_list(side) for side in lists)


def _is_letter(now: Any, proposed: Any) -> bool:
    """Return whether two values are shown as a text with marked words: one is long, and
    the other is a text or nothing.
    """
    if not is_long(now) and not is_long(proposed):
        return False
    return _is_text_or_nothing(now) and _is_text_or_nothing(proposed)


def _is_text_or_nothing(value: Any) -> bool:
    return isinstance(value, str) or _is_nothing(value)


def _is_nothing(value: Any) -> bool:
    return value is None or value is ABSENT
