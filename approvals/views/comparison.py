"""What a proposal changes: fields of objects, words of texts, items of lists, page by page. Pure.

Two values that differ never look the same here, and nothing that differs is left out: what is equal is folded, what is
too long is cut with its length and fingerprint, and everything else has its page. What is compared is what the caller
gives as `now`; a value's own account of what it changes is shown as that, and only where `change` asks for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.views import text_pieces
from approvals.views.change_blocks import (
    NOW,
    PROPOSED,
    Block,
    Fields,
    Items,
    Letter,
    ManyFields,
    Note,
    Path,
    becomes,
)
from approvals.views.edit_script import Steps
from approvals.views.leaf import ABSENT, is_short_list, label_of_path, leaf_of
from approvals.views.value_types import NOTHING_DECLARED, ValueType
from checkpoints.core.visible_json import fingerprint
from orchestrator.engine.canonical import encode
from orchestrator.engine.ops import same

LETTER = 120
"""Characters from which a text is shown as a letter with marked words."""
PAGE = 40
"""Rows, items, and stretches of a letter on one page."""
FOLDED_FROM = 8000
"""Characters from which what is unchanged in a letter is folded."""
MANY = 2000
"""Fields of two objects from which those that are unchanged are only counted."""
DEEPEST = 4
"""Keys of a path; what lies deeper is shown as JSON."""
_BOXES = (dict, list)


@dataclass(slots=True)
class Part:
    """What a page shows of a block."""

    block: Block
    units: Sequence[Any]
    first: bool


@dataclass(slots=True)
class Comparison:
    """What is shown of a change. `lead` stands above it; `same` are equal fields, `unlisted` says how many more."""

    blocks: list[Block] = field(default_factory=list)
    same: Fields = field(default_factory=lambda: Fields(heads=None))
    lead: list[Note] = field(default_factory=list)
    unlisted: str = ""

    @property
    def pages(self) -> int:
        return max(1, -(-sum(len(block) for block in self.blocks) // PAGE))

    def page(self, number: int) -> list[Part]:
        """What stands on that page, the first being 0."""
        start, stop, at, found = number * PAGE, (number + 1) * PAGE, 0, []
        for block in self.blocks:
            first, last = max(start - at, 0), min(stop - at, len(block))
            if first < last:
                found.append(Part(block, block.units(first, last), first == 0))
            at += len(block)
        return found


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
    """How the change from `now` to `proposed` is shown. `adds`: the value is combined with what is there.

    `heads` say what the two values are. `change` names the two keys under which the value itself says what was and
    what becomes of it. `declared` is the type of both values.
    """
    found = _Builder(steps or Steps(), declared)
    found.table.heads = heads
    if adds:
        found.add(now, proposed, change)
    elif _says_change(proposed, change):
        found.say(proposed, change)
        found.lead.append(("There now:", leaf_of(now, declared=declared)))
    else:
        found.table.fresh = now is None
        found.walk((), now, proposed)
    return found.comparison()


def alone(value: Any, *, declared: ValueType = NOTHING_DECLARED) -> Comparison:
    """How a value is shown beside which nothing stands."""
    found = _Builder(Steps(), declared)
    found._flat((), value)
    return found.comparison()


def is_long(value: Any) -> bool:
    """Whether a value is a text that is read as a letter."""
    return isinstance(value, str) and (len(value) > LETTER or "\n" in value)


def _says_change(value: Any, change: Sequence[str]) -> bool:
    both = len(change) == 2 and isinstance(value, Mapping)
    return both and all(isinstance(value.get(key), Mapping) for key in change)


class _Builder:
    """A comparison under construction: tables first, then letters and lists."""

    def __init__(self, steps: Steps, declared: ValueType) -> None:
        self.steps = steps
        self.declared = declared
        self.table = Fields(declared=declared)
        self.more = Fields(heads=None, declared=declared)
        self.blocks: list[Block] = []
        self.same = Fields(heads=None, declared=declared)
        self.lead: list[Note] = []
        self.unlisted = ""

    def comparison(self) -> Comparison:
        tables: list[Block] = [table for table in (self.table, self.more) if table.entries]
        return Comparison([*tables, *self.blocks], self.same, self.lead, self.unlisted)

    def add(self, now: Any, proposed: Any, change: Sequence[str]) -> None:
        """The value is combined with what is there, by the channel's own rule."""
        if isinstance(proposed, list):
            self._add_items(now, proposed, change)
            return
        self.lead.append(("It is combined with what was there when proposed:", leaf_of(now)))
        self.table.heads = ("Is there already", PROPOSED)
        if isinstance(proposed, Mapping) and isinstance(now, Mapping) and proposed:
            for key, value in proposed.items():
                self.walk((key,), now.get(key, ABSENT), value)
        elif is_long(proposed):
            self._flat((), proposed)
        else:
            self.table.entries.append(((), now, proposed))

    def _add_items(self, now: Any, proposed: list[Any], change: Sequence[str]) -> None:
        count = f"{len(proposed):,} item{'' if len(proposed) == 1 else 's'}"
        if now in (None, []):
            nothing = "empty" if now == [] else "not set"
            self.lead.append((f"Adds {count} (the list was {nothing}).", None))
        else:
            there = leaf_of(now, declared=self.declared)
            self.lead.append((f"Adds {count} to what was there when it was proposed:", there))
        # From here on the fields shown are those of one item.
        self.table.declared = self.more.declared = self.declared.field("")
        only: Any = proposed[0] if len(proposed) == 1 else None
        if _says_change(only, change):
            self.say(only, change)
        elif isinstance(only, Mapping) and only:
            for key, value in only.items():
                self._flat((key,), value)
        elif proposed:
            self.blocks.append(Items("", [], proposed, self.steps, declared=self.declared))

    def say(self, value: Mapping[str, Any], change: Sequence[str]) -> None:
        """The value's own account of a change: shown as what it says, and below it what else it holds."""
        self.lead.append(("What changes, as stated in the proposal:", None))
        self.table.heads = ("Before", "After")
        self.table.declared = self.table.declared.field(change[1])
        self.walk((), value[change[0]], value[change[1]])
        self.more.title = "Other fields"
        for key, inner in value.items():
            if key not in change:
                self._flat((key,), inner)

    def walk(self, path: Path, now: Any, proposed: Any) -> None:
        """Put what differs between two values where it is shown."""
        if now is not ABSENT and proposed is not ABSENT and same(now, proposed):
            self._unchanged(path, proposed)
        elif self._is_entered(path, now, proposed):
            self._enter(
                path, now if isinstance(now, Mapping) else {}, proposed if isinstance(proposed, Mapping) else {}
            )
        elif _are_items(now, proposed, whole=not path):
            before, after = (side if isinstance(side, list) else [] for side in (now, proposed))
            notes, declared = self._notes(now, proposed), self.table.declared.at(path)
            self.blocks.append(Items(label_of_path(path), before, after, self.steps, notes, declared=declared))
        elif _is_letter(now, proposed):
            self.blocks.append(self._letter(label_of_path(path), now, proposed, self._notes(now, proposed)))
        else:
            self.table.entries.append((path, now, proposed))

    def _is_entered(self, path: Path, now: Any, proposed: Any) -> bool:
        """Whether the fields of an object are shown one by one: beside those of another, or beside nothing."""
        one, other = isinstance(now, Mapping), isinstance(proposed, Mapping)
        if len(path) >= DEEPEST or not (one or other):
            return False
        if one and other:
            return bool(now and proposed) or not path
        if not path:
            return bool(proposed) and now is None
        return bool((now and proposed is ABSENT) if one else (proposed and now is ABSENT))

    def _enter(self, path: Path, now: Mapping[str, Any], proposed: Mapping[str, Any]) -> None:
        if len(now) + len(proposed) > MANY:
            self._enter_many(path, now, proposed)
            return
        for key, value in proposed.items():
            self.walk((*path, key), now.get(key, ABSENT), value)
        for key, old in now.items():
            if key not in proposed:
                self.walk((*path, key), old, ABSENT)

    def _enter_many(self, path: Path, now: Mapping[str, Any], proposed: Mapping[str, Any]) -> None:
        """Each field that differs is a row, however large its values; of the others only how many they are."""
        # Where both have the same keys in the same order, as canonical JSON has, nothing need be looked up.
        aligned = list(now) == list(proposed)
        beside = now.values() if aligned else [now.get(key, ABSENT) for key in proposed]
        changed = [
            key
            for (key, value), old in zip(proposed.items(), beside, strict=True)
            if old != value or type(old) is not type(value) or (type(value) in _BOXES and not same(old, value))
        ]
        silent = len(proposed) - len(changed)
        changed += [] if aligned else [key for key in now if key not in proposed]
        if changed:
            self.blocks.append(ManyFields(path, changed, now, proposed, self.table))
        if silent:
            where = f" of {label_of_path(path)}" if path else ""
            self.unlisted += f"{silent:,} fields{where} are unchanged, fingerprint {fingerprint(encode(proposed))}. "

    def _unchanged(self, path: Path, value: Any) -> None:
        self.same.entries += [(inner, ABSENT, one) for inner, one in _fields(path, value)]

    def _flat(self, path: Path, value: Any) -> None:
        """A value beside which nothing stands, by its fields."""
        for inner, one in _fields(path, value):
            title = ": ".join(filter(None, (self.more.title, label_of_path(inner))))
            if _are_items(ABSENT, one, whole=False):
                self.blocks.append(Items(title, [], one, self.steps, declared=self.more.declared.at(inner)))
            elif is_long(one):
                self.blocks.append(self._letter(title, "", one, []))
            else:
                self.more.entries.append((inner, ABSENT, one))

    def _notes(self, now: Any, proposed: Any) -> list[Note]:
        """What stands on the side of a letter or a list that has nothing to show."""
        heads = self.table.heads or (NOW, PROPOSED)
        found: list[Note] = [] if now or (now is ABSENT and self.table.fresh) else [(f"{heads[0]}:", leaf_of(now))]
        return found if proposed else [*found, (f"{heads[1]}:", becomes(proposed))]

    def _letter(self, title: str, now: Any, proposed: Any, notes: list[Note]) -> Letter:
        before, after = (side if isinstance(side, str) else "" for side in (now, proposed))
        found = text_pieces.pieces(before, after, self.steps)
        if len(before) + len(after) > FOLDED_FROM:
            found = text_pieces.folded(found, longest=1200, beside=300)
        return Letter(title, found, notes)


def _fields(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """The fields of an object, and of those within; anything else, or a large one, as a whole."""
    if isinstance(value, Mapping) and 0 < len(value) <= PAGE and len(path) < DEEPEST:
        for key, inner in value.items():
            yield from _fields((*path, key), inner)
    else:
        yield path, value


def _are_items(now: Any, proposed: Any, *, whole: bool) -> bool:
    """Whether two values are shown item by item: lists, of which one may be nothing. Short ones have room in a cell."""
    sides = [side for side in (now, proposed) if isinstance(side, list) and side]
    if not sides or not all(isinstance(side, list) or side is None or side is ABSENT for side in (now, proposed)):
        return False
    return whole or not all(is_short_list(side) for side in sides)


def _is_letter(now: Any, proposed: Any) -> bool:
    """Whether two values are shown as a text with marked words: one is long, and the other is a text or nothing."""
    if not (is_long(now) or is_long(proposed)):
        return False
    return all(isinstance(side, str) or side is None or side is ABSENT for side in (now, proposed))
