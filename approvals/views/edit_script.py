"""How one sequence became another: which stretches both have, and which were replaced. Pure.

The work is bounded whatever is compared: equal beginnings and ends are found in whole chunks, what stands once on both
sides is matched in one pass, and only what is left between is compared step by step, as long as `Steps` lasts. What is
not compared any more counts as replaced.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.canonical import encode
from orchestrator.engine.ops import same

CHUNK = 4096
MOST_ITEMS = 60_000
"""Items of both sides together, without equal ends, up to which they are matched one by one."""
MOST_STEPS = 100_000
MOST_EDITS = 200
"""Edits between two matched items up to which the shortest script is looked for."""


@dataclass(slots=True)
class Steps:
    """What comparing may cost. `taken` are single comparisons, `scanned` items that were compared in whole chunks."""

    most: int = MOST_STEPS
    taken: int = 0
    scanned: int = 0

    def take(self, number: int) -> bool:
        """Whether that many more are allowed."""
        self.taken += number
        return self.taken <= self.most


@dataclass(frozen=True, slots=True)
class Span:
    """`before[a:b]` became `after[c:d]`; where `equal`, they are the same."""

    equal: bool
    a: int
    b: int
    c: int
    d: int


def edit_script(before: Sequence[Any], after: Sequence[Any], steps: Steps) -> list[Span]:
    """The spans that lead from one list of JSON values to the other, in order, equal and replaced in turn."""
    start = shared_start(before, after, steps)
    end = shared_end(before, after, steps, start)
    b, d = len(before) - end, len(after) - end
    middle = _matched(before[start:b], after[start:d], steps)
    runs = [(0, 0, start)] if start else []
    runs += [(start + a, start + c, number) for a, c, number in middle]
    runs += [(b, d, end)] if end else []
    return list(_spans(runs, len(before), len(after)))


def shared_start(before: Any, after: Any, steps: Steps) -> int:
    """How many items, or characters, both begin with."""
    end, at, size = min(len(before), len(after)), 0, CHUNK
    while at < end and size:
        stop = min(at + size, end)
        steps.scanned += stop - at
        if same(before[at:stop], after[at:stop]):
            at = stop
        else:
            size //= 2
    return at


def shared_end(before: Any, after: Any, steps: Steps, start: int = 0) -> int:
    """How many items, or characters, both end with, without the first `start`."""
    end, at, size = min(len(before), len(after)) - start, 0, CHUNK
    while at < end and size:
        stop = min(at + size, end)
        steps.scanned += stop - at
        if same(before[len(before) - stop : len(before) - at], after[len(after) - stop : len(after) - at]):
            at = stop
        else:
            size //= 2
    return at


Run = tuple[int, int, int]
"""Where a stretch begins in `before` and in `after`, and how long it is."""


def _spans(runs: Sequence[Run], before: int, after: int) -> Iterator[Span]:
    a = c = 0
    for first, second, number in _merged(runs):
        if first > a or second > c:
            yield Span(False, a, first, c, second)
        a, c = first + number, second + number
        yield Span(True, first, a, second, c)
    if before > a or after > c:
        yield Span(False, a, before, c, after)


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    """Runs that follow each other on both sides as one."""
    begun: Run | None = None
    for first, second, number in runs:
        if begun and (begun[0] + begun[2], begun[1] + begun[2]) == (first, second):
            begun = (begun[0], begun[1], begun[2] + number)
            continue
        if begun:
            yield begun
        begun = (first, second, number)
    if begun:
        yield begun


def _matched(before: Sequence[Any], after: Sequence[Any], steps: Steps) -> Iterator[Run]:
    """The runs that both have, in order."""
    if not before or not after or len(before) + len(after) > MOST_ITEMS:
        return
    one, other = [encode(item) for item in before], [encode(item) for item in after]
    steps.scanned += len(one) + len(other)
    a = c = 0
    for first, second in [*_anchors(one, other), (len(one), len(other))]:
        yield from ((a + x, c + y, 1) for x, y in _between(one[a:first], other[c:second], steps))
        if first < len(one):
            yield first, second, 1
        a, c = first + 1, second + 1


def _anchors(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[tuple[int, int]]:
    """What stands once on each side, as far as its order is the same: the longest such row."""
    here, there = _single(one), _single(other)
    pairs = [(at, there[item]) for item, at in here.items() if item in there]
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        place = bisect_left(tails, second)
        before.append(ends[place - 1] if place else -1)
        tails[place : place + 1], ends[place : place + 1] = [second], [number]
    found, at = [], ends[-1] if ends else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _single(items: Sequence[Hashable]) -> dict[Hashable, int]:
    """Item -> place, of those that stand there once."""
    places: dict[Hashable, int] = {}
    for at, item in enumerate(items):
        places[item] = -1 if item in places else at
    return {item: at for item, at in places.items() if at >= 0}


def _between(one: Sequence[Hashable], other: Sequence[Hashable], steps: Steps) -> list[tuple[int, int]]:
    """The pairs of a shortest edit script, after Myers; none where the steps do not last."""
    if not one or not other:
        return []
    reach, trail = {1: 0}, []
    for d in range(min(len(one) + len(other), MOST_EDITS) + 1):
        if not steps.take(d + 1):
            return []
        trail.append(dict(reach))
        for k in range(-d, d + 1, 2):
            x = reach[k + 1] if k == -d or (k != d and reach[k - 1] < reach[k + 1]) else reach[k - 1] + 1
            begun = x
            while x < len(one) and x - k < len(other) and one[x] == other[x - k]:
                x += 1
            reach[k] = x
            if not steps.take(x - begun):
                return []
            if x >= len(one) and x - k >= len(other):
                return _walked_back(trail, len(one), len(other))
    return []


def _walked_back(trail: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for d in range(len(trail) - 1, -1, -1):
        reach, k = trail[d], x - y
        last = k + 1 if k == -d or (k != d and reach[k - 1] < reach[k + 1]) else k - 1
        start = (reach[last], reach[last] - last) if d else (0, 0)
        while x > start[0] and y > start[1]:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start
    return pairs[::-1]
