"""Many writes as a few groups: what writes of one likeness have in common, what differs, and which stand apart. Pure.

A group is decided as one once three of its writes were opened; the seal of a group is that of all that it holds.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from statistics import median
from typing import Any
from uuid import UUID

from approvals.views.leaf import ABSENT, Leaf, label_of_path, leaf_of
from approvals.views.value_types import ValueType
from approvals.views.write_effects import WriteEffect
from checkpoints.models import PendingWrite
from orchestrator.engine.canonical import encode
from orchestrator.engine.ops import same

SMALLEST = 4
"""Writes that make a group; fewer of one likeness stand apart."""
MOST_GROUPS = 12
SAMPLES = 3
FAR = 10
"""Times the median amount of its group from which a write stands apart."""
MOST_ROWS = 12
"""Fields that a group shows; of more it says how many."""

Fields = Mapping[str, tuple[Any, Any]]
"""Field -> what is there and what is proposed."""


@dataclass(slots=True)
class WriteLine:
    """One pending write as a line of a review of many. `name` is what the gate calls all writes of its channel, and
    `chosen` the verdict that was drafted for it.
    """

    number: int
    row: PendingWrite
    request: UUID
    title: str
    name: str
    open: bool
    may: bool
    changed: Fields
    others: Fields
    declared: ValueType
    effect: WriteEffect
    amount: Decimal | None = None
    settled_line: str = ""
    chosen: str = ""
    slip: Any = None

    @property
    def write(self) -> str:
        return str(self.row.write)

    @property
    def anchor(self) -> str:
        return f"w{self.number}"

    @property
    def likeness(self) -> tuple[Any, ...]:
        """Writes that have the same are of one group."""
        return (self.request, self.row.node, self.row.channel, self.row.reason, tuple(sorted(self.changed)))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One field of a group: a value that all its writes share, or how many there are."""

    label: str
    now: Leaf | None
    proposed: Leaf


@dataclass(slots=True)
class Group:
    """Writes of one likeness. `seen` are the samples that this person has opened as they stand."""

    id: str
    title: str
    lines: list[WriteLine]
    rows: list[GroupRow]
    more_rows: int
    samples: list[WriteLine]
    total: Leaf | None
    number: int = 0
    reason_required: bool = False
    chosen: str = ""
    reason: str = ""
    seen: set[str] = field(default_factory=set)
    opened: list[Any] = field(default_factory=list)
    pager: Any = None
    shown_lines: Sequence[WriteLine] = ()
    errors: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return f"g{self.number}"

    @property
    def count(self) -> int:
        return len(self.lines)

    @property
    def node(self) -> str:
        return str(self.lines[0].row.node)

    @property
    def channel(self) -> str:
        return str(self.lines[0].row.channel)

    @property
    def superstep(self) -> int:
        return int(self.lines[0].row.superstep)

    @property
    def effect(self) -> WriteEffect:
        return self.lines[0].effect

    @property
    def fresh(self) -> bool:
        """Whether nothing was there before, for any of them."""
        return all(row.now is None or row.now.kind == "nothing" for row in self.rows)

    @property
    def to_open(self) -> int:
        """How many samples are still to be opened before it can be approved."""
        return sum(1 for line in self.samples if line.write not in self.seen)

    @property
    def may_approve(self) -> bool:
        return not self.to_open or self.chosen == "approve"

    @property
    def own(self) -> int:
        """How many of its writes were decided on their own."""
        return sum(1 for line in self.lines if line.chosen and line.chosen != self.chosen)

    @property
    def seal(self) -> str:
        """One hash over every write of the group as it stands."""
        text = "\n".join(f"{line.write} {line.row.hash}" for line in self.lines)
        return hashlib.sha256(text.encode()).hexdigest()


def changed_fields(now: Any, proposed: Any, *, adds: bool, stated: Sequence[str]) -> tuple[Fields, Fields]:
    """What a write changes by field, and its further fields where it states a change itself. `adds` and `stated` as
    `comparison.compare` takes them; a value that is no object is one field without a name.
    """
    if adds:
        now = None
        if isinstance(proposed, list) and len(proposed) == 1:
            proposed = proposed[0]
    others: Fields = {}
    if _states_change(proposed, stated):
        others = {key: (ABSENT, value) for key, value in proposed.items() if key not in stated}
        now, proposed = proposed[stated[0]], proposed[stated[1]]
    return dict(_differing(now, proposed)), others


def _states_change(value: Any, stated: Sequence[str]) -> bool:
    both = len(stated) == 2 and isinstance(value, Mapping)
    return both and all(isinstance(value.get(key), Mapping) for key in stated)


def _differing(now: Any, proposed: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if not isinstance(proposed, Mapping) or not (now is None or isinstance(now, Mapping)):
        yield "", (now, proposed)
        return
    before = now or {}
    for key in dict.fromkeys([*proposed, *before]):
        old, new = before.get(key, ABSENT), proposed.get(key, ABSENT)
        if old is ABSENT or new is ABSENT or not same(old, new):
            yield key, (old, new)


def amount_of(money: Any) -> Decimal | None:
    """The amount that a gate declares for a write; None where there is none."""
    try:
        return None if money is None else Decimal(str(money))
    except InvalidOperation:
        return None


def grouped(lines: Iterable[WriteLine]) -> tuple[list[Group], list[WriteLine]]:
    """The groups of those lines that can be decided, the largest ones; and every other line, in order."""
    alike: dict[tuple[Any, ...], list[WriteLine]] = {}
    every = list(lines)
    for line in every:
        if line.may:
            alike.setdefault(line.likeness, []).append(line)
    near = [_without_far(members) for members in alike.values()]
    large = sorted((members for members in near if len(members) >= SMALLEST), key=len, reverse=True)
    groups = [_group(members) for members in large[:MOST_GROUPS]]
    within = {line.write for group in groups for line in group.lines}
    return groups, [line for line in every if line.write not in within]


def _without_far(members: list[WriteLine]) -> list[WriteLine]:
    """The lines whose amount is not far above that of the others."""
    amounts = [abs(line.amount) for line in members if line.amount is not None]
    if len(amounts) < SMALLEST:
        return members
    limit = FAR * median(amounts)
    return [line for line in members if line.amount is None or abs(line.amount) <= limit]


def _group(lines: list[WriteLine]) -> Group:
    first = lines[0]
    rows = [_row(lines, key, others=False) for key in first.changed]
    rows += [_row(lines, key, others=True) for key in first.others]
    name = hashlib.sha256(repr(first.likeness).encode()).hexdigest()[:12]
    return Group(name, _title(lines), lines, rows[:MOST_ROWS], len(rows[MOST_ROWS:]), _samples(lines), _total(lines))


def _title(lines: Sequence[WriteLine]) -> str:
    titles = {line.title for line in lines}
    name = titles.pop() if len(titles) == 1 else lines[0].name
    replaced = [key for key, (old, _) in lines[0].changed.items() if key and old is not ABSENT]
    fields = ", ".join(label_of_path((key,)).lower() for key in replaced)
    return f"{len(lines):,} × {name}{': ' if fields else ''}{fields}"


def _row(lines: Sequence[WriteLine], key: str, *, others: bool) -> GroupRow:
    pairs = [(line.others if others else line.changed).get(key, (ABSENT, ABSENT)) for line in lines]
    declared = lines[0].declared.at((key,)) if key else lines[0].declared
    label = label_of_path((key,)) if key else "Value"
    now = None if others else _shared([old for old, _ in pairs], declared)
    return GroupRow(label, now, _shared([new for _, new in pairs], declared))


def _shared(values: Sequence[Any], declared: ValueType) -> Leaf:
    """The value that all have, or how many different ones there are."""
    count = Counter(b"" if value is ABSENT else encode(value) for value in values)
    if len(count) == 1:
        return leaf_of(values[0], longest=200, declared=declared)
    return Leaf("count", f"{len(count):,} different values")


def _samples(lines: Sequence[WriteLine]) -> list[WriteLine]:
    """The writes that have to be opened: the first, the last, and the one that is farthest from the rest."""
    middle = lines[1:-1]
    if all(line.amount is not None for line in lines):
        usual = median(line.amount for line in lines if line.amount is not None)
        farthest = max(middle, key=lambda line: abs((line.amount or 0) - usual))
    else:
        usual_size = median(line.row.size for line in lines)
        farthest = max(middle, key=lambda line: abs(line.row.size - usual_size))
    return sorted([lines[0], farthest, lines[-1]], key=lambda line: line.number)


def _total(lines: Sequence[WriteLine]) -> Leaf | None:
    """The sum of the amounts that the gate declares."""
    if any(line.amount is None for line in lines):
        return None
    total = sum((line.amount for line in lines if line.amount is not None), Decimal(0))
    return leaf_of(str(total), declared=lines[0].declared.money())


def choose_by_drafts(group: Group) -> None:
    """Say of a group what was drafted for it: the verdict of most, once each of its writes has one."""
    count = Counter(line.chosen for line in group.lines)
    verdict, times = count.most_common(1)[0]
    if verdict in ("approve", "reject") and not count[""] and times * 2 > group.count:
        group.chosen = verdict
