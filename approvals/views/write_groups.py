"""Many writes as a few groups: what similar writes have in common, where they differ,
and which stand apart. Pure.

A group can be decided as one once three of its writes were opened; its seal covers all
of its writes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any
from uuid import UUID

from approvals.display.comparison import states_change
from approvals.display.drawn_change import NOT_THERE, draw_change
from approvals.display.leaf import ABSENT, Leaf, label_of_path, leaf_of
from approvals.display.value_types import ValueType
from approvals.views.write_effects import WriteEffect
from checkpoints.models import PendingWrite
from orchestrator.engine.values.canonical import encode
from orchestrator.engine.values.ops import same

SMALLEST = 4
"""The fewest similar writes that make a group; if there are fewer, each stands apart.
"""
MOST_GROUPS = 12
SAMPLES = 3
FAR = 10
"""A write is an outlier if its amount is more than this many times the group's median.
"""
MOST_DIGITS = 100
"""The most digits of an amount before its point, and the most zeros behind it."""
MOST_ROWS = 12
"""The most fields that a group shows; the others are counted."""
LONGEST_SHARED = 200
"""The most characters of a value that all writes of a group share."""

Fields = Mapping[str, tuple[Any, Any]]
"""Field -> the current and the proposed value."""


@dataclass(slots=True)
class WriteLine:
    """One pending write as a line of a review of many. `name` is the gate's name for
    all writes to its channel, and `chosen` the verdict that is drafted for this one.
    `form` is the digest of its form, empty without one.
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
    form: str = ""
    of_item: bool = False
    amount: Decimal | None = None
    unanswered: bool = False
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
        """The key that is equal for all writes of a group."""
        return (
            self.request,
            self.row.node,
            self.row.channel,
            # The type that edits must fit, and the effect of acting on the write.
            self.form,
            self.row.reason,
            tuple(sorted(self.changed)),
            # Each question is answered by itself.
            self.write if self.unanswered else "",
        )


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One field of a group: a value that all its writes share, or how many there are."""

    label: str
    now: Leaf | None
    proposed: Leaf


@dataclass(slots=True)
class WriteGroup:
    """Similar writes. `seen` are the samples whose newest revision this person has
    opened.
    """

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
    def kind(self) -> str:
        """Return what a list names beside its title: the effect of items, and of other
        writes the channel.
        """
        first = self.lines[0]
        return first.effect.named if first.of_item else self.channel

    @property
    def superstep(self) -> int:
        return int(self.lines[0].row.superstep)

    @property
    def effect(self) -> WriteEffect:
        return self.lines[0].effect

    @property
    def fresh(self) -> bool:
        """Return whether no write of the group replaces a value."""
        return all(row.now is None or row.now.kind == "nothing" for row in self.rows)

    @property
    def sample_writes(self) -> set[str]:
        return {line.write for line in self.samples}

    @property
    def to_open(self) -> int:
        """The number of samples still to be opened before the group can be approved."""
        return len(self.sample_writes - self.seen)

    @property
    def may_approve(self) -> bool:
        # An approval is drafted only once the samples were opened, so a draft proves
        # it.
        return not self.to_open or self.chosen == "approve"

    @property
    def own(self) -> int:
        """The number of writes that were decided on their own."""
        own = [line for line in self.lines if line.chosen not in ("", self.chosen)]
        return len(own)

    @property
    def seal(self) -> str:
        """One hash over the newest revisions of all writes of the group."""
        text = "\n".join(f"{line.write} {line.row.hash}" for line in self.lines)
        return hashlib.sha256(text.encode()).hexdigest()


def changed_fields(
    now: Any,
    proposed: Any,
    *,
    adds: bool,
    stated: Sequence[str],
) -> tuple[Fields, Fields]:
    """Return what a write changes, by field, and its other fields if the value itself
    states a change. `adds` and `stated` are those of `comparison.compare`; a value that
    is not an object is one field without a name.
    """
    if adds:
        now = None
        # One added item is compared field by field; several are one value.
        if isinstance(proposed, list) and len(proposed) == 1:
            proposed = proposed[0]
    others: Fields = {}
    if states_change(proposed, stated):
        before, after = stated
        others = {
            key: (ABSENT, value) for key, value in proposed.items() if key not in stated
        }
        now = proposed[before]
        proposed = proposed[after]
    return dict(_differing(now, proposed)), others


def _differing(now: Any, proposed: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the fields that differ, with both values."""
    before = {} if now is None else now
    if not isinstance(proposed, Mapping) or not isinstance(before, Mapping):
        yield "", (now, proposed)
        return
    for key in dict.fromkeys([*proposed, *before]):
        old = before.get(key, ABSENT)
        new = proposed.get(key, ABSENT)
        # `same` compares JSON values, and there is none on one of the sides.
        if old is ABSENT or new is ABSENT or not same(old, new):
            yield key, (old, new)


def amount_of(money: Any) -> Decimal | None:
    """Return the amount that a gate declares for a write; None if there is no amount,
    or it is not a number.
    """
    if money is None:
        return None
    try:
        amount = Decimal(str(money))
    except (ArithmeticError, ValueError):
        return None
    # Sums and comparisons of others raise errors, and money is none of them.
    if not amount.is_finite() or abs(amount.adjusted()) > MOST_DIGITS:
        return None
    return amount


def grouped(lines: Iterable[WriteLine]) -> tuple[list[WriteGroup], list[WriteLine]]:
    """Return the largest groups of lines that can be decided, and all other lines, in
    order.
    """
    lines = list(lines)
    # A few similar writes are read faster one by one.
    large = [members for members in _alike(lines) if len(members) >= SMALLEST]
    # If there are more than a page shows, the largest groups spare the reader most.
    large.sort(key=len, reverse=True)
    groups = [_group(members) for members in large[:MOST_GROUPS]]
    within: set[str] = set()
    for group in groups:
        for line in group.lines:
            within.add(line.write)
    return groups, [line for line in lines if line.write not in within]


def _alike(lines: Iterable[WriteLine]) -> list[list[WriteLine]]:
    """Return the lines that can be decided, by likeness, without outliers."""
    alike: dict[tuple[Any, ...], list[WriteLine]] = {}
    for line in lines:
        if line.may:
            alike.setdefault(line.likeness, []).append(line)
    return [_without_outliers(members) for members in alike.values()]


def _without_outliers(members: list[WriteLine]) -> list[WriteLine]:
    """Return the lines whose amount is not far above that of the others."""
    amounts = []
    for line in members:
        if line.amount is not None:
            amounts.append(abs(line.amount))
    # The median of a few amounts does not show what is usual.
    if len(amounts) < SMALLEST:
        return members
    limit = FAR * median(amounts)
    usual = []
    for line in members:
        if line.amount is None or abs(line.amount) <= limit:
            usual.append(line)
    return usual


def _group(lines: list[WriteLine]) -> WriteGroup:
    first = lines[0]
    rows = []
    for key in first.changed:
        rows.append(_row(lines, key, others=False))
    for key in first.others:
        rows.append(_row(lines, key, others=True))
    return WriteGroup(
        id=hashlib.sha256(repr(first.likeness).encode()).hexdigest()[:12],
        title=_title(lines),
        lines=lines,
        rows=rows[:MOST_ROWS],
        more_rows=len(rows[MOST_ROWS:]),
        samples=_samples(lines),
        total=_total(lines),
    )


def _title(lines: Sequence[WriteLine]) -> str:
    """Return how many writes there are, their name, and the fields that they replace."""
    # Titles that quote the value differ; the gate's name for them does not.
    titles = {line.title for line in lines}
    name = titles.pop() if len(titles) == 1 else lines[0].name
    title = f"{len(lines):,} × {name}"
    fields = []
    for key, (old, _) in lines[0].changed.items():
        if key and old is not ABSENT:
            fields.append(label_of_path((key,)).lower())
    return f"{title}: {', '.join(fields)}" if fields else title


def _row(lines: Sequence[WriteLine], key: str, *, others: bool) -> GroupRow:
    """Return the row of one field."""
    label = "Value"
    declared = lines[0].declared
    if key:
        label = label_of_path((key,))
        declared = declared.at((key,))
    olds = []
    news = []
    for line in lines:
        fields = line.others if others else line.changed
        # A field need not be there in each write.
        old, new = fields.get(key, (ABSENT, ABSENT))
        olds.append(old)
        news.append(new)
    new_count = _count_distinct(news)
    if others:
        return GroupRow(label, None, _shared(news, new_count, declared))
    old_count = _count_distinct(olds)
    if old_count > 1 or new_count > 1:
        now = _shared(olds, old_count, declared)
        return GroupRow(label, now, _shared(news, new_count, declared))
    # Two long values are shown where they differ.
    change = draw_change(
        olds[0],
        news[0],
        declared=declared,
        longest=LONGEST_SHARED,
        missing=NOT_THERE,
    )
    return GroupRow(label, change.before, change.after)


def _shared(values: Sequence[Any], count: int, declared: ValueType) -> Leaf:
    """Return the value that all writes have, or how many different ones there are."""
    if count == 1:
        return leaf_of(values[0], longest=LONGEST_SHARED, declared=declared)
    return Leaf("count", f"{count:,} different values")


def _count_distinct(values: Sequence[Any]) -> int:
    distinct = set()
    for value in values:
        # No JSON is empty.
        data = b"" if value is ABSENT else encode(value)
        distinct.add(data)
    return len(distinct)


def _samples(lines: Sequence[WriteLine]) -> list[WriteLine]:
    """Return the writes that have to be opened: the first, the last, and the one whose
    amount, or size if not all have an amount, is farthest from the others.
    """
    # If money is unknown, an odd size is the best hint at an odd value.
    sizes: list[Any] = _amounts(lines) or [line.row.size for line in lines]
    usual = median(sizes)
    distances = [abs(size - usual) for size in sizes]
    middle = range(1, len(lines) - 1)
    farthest = lines[max(middle, key=distances.__getitem__)]
    return sorted([lines[0], farthest, lines[-1]], key=lambda line: line.number)


def _amounts(lines: Sequence[WriteLine]) -> list[Decimal]:
    """Return the amounts of writes; empty if one of them has none."""
    amounts = []
    for line in lines:
        if line.amount is None:
            return []
        amounts.append(line.amount)
    return amounts


def _total(lines: Sequence[WriteLine]) -> Leaf | None:
    """Return the sum of the amounts that the gate declares; None if a write has none."""
    amounts = _amounts(lines)
    if not amounts:
        return None
    total = sum(amounts, Decimal(0))
    return leaf_of(str(total), declared=lines[0].declared.money())


def choose_by_drafts(group: WriteGroup) -> None:
    """Set the verdict that is drafted for a group: the verdict of more than half of its
    writes, once all of them have one.
    """
    counts = Counter(line.chosen for line in group.lines)
    if counts[""]:
        return
    verdict, times = counts.most_common(1)[0]
    if verdict in ("approve", "reject") and times * 2 > group.count:
        group.chosen = verdict
