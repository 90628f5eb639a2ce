"""The edit script from one sequence to another: the stretches that both have, and those
that were replaced. Pure.

The work is bounded for all input: equal beginnings and ends are found in whole chunks,
items that occur once on each side are matched in one linear pass, and only the rest
between them is compared item by item, as far as `Steps` and `MOST_PAIRS` allow. Where
they do not, equal items at equal offsets are matched if both sides are equally long,
and everything else counts as replaced.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Indel

from orchestrator.engine.values.canonical import encode
from orchestrator.engine.values.ops import same

CHUNK = 4096
MOST_ITEMS = 60_000
"""The most items of both sides together, without equal ends, up to which items that
moved are looked for.
"""
MOST_PAIRS = 200_000_000
"""The largest number of pairs of items, between two matched ones, that are still
compared. The comparison keeps a bit for each pair: 25 MB.
"""
PAIRS_IN_STEP = 64
"""The most pairs of items that are compared at once, in the bits of a machine word."""
MOST_STEPS = (MOST_ITEMS // 2) ** 2 // PAIRS_IN_STEP
"""The most steps of one page, a quarter of a second: enough for several of the largest
comparisons.
"""
MOST_SPANS = 60_000
"""The most spans of items at equal offsets; the items after them count as replaced."""


@dataclass(slots=True)
class Steps:
    """The budget of a comparison. `taken` are steps of `PAIRS_IN_STEP` comparisons,
    `scanned` items that were compared in whole chunks.
    """

    most: int = MOST_STEPS
    taken: int = 0
    scanned: int = 0

    def take(self, number: int) -> bool:
        """Take that many steps if the budget allows them, and return whether it does."""
        if self.taken + number > self.most:
            return False
        self.taken += number
        return True


@dataclass(frozen=True, slots=True)
class Span:
    """`before[a:b]` became `after[c:d]`; where `equal`, they are the same."""

    equal: bool
    a: int
    b: int
    c: int
    d: int


def edit_script(
    before: Sequence[Any],
    after: Sequence[Any],
    steps: Steps,
) -> list[Span]:
    """Return the spans that lead from one list of JSON values to the other, in order,
    equal and replaced in turn.
    """
    start = shared_start(before, after, steps)
    end = shared_end(before, after, steps, start)
    before_end = len(before) - end
    after_end = len(after) - end

    spans = [Span(True, 0, start, 0, start)]
    middle = _spans_between(before[start:before_end], after[start:after_end], steps)
    for span in middle:
        spans.append(_moved(span, start, start))
    spans.append(Span(True, before_end, len(before), after_end, len(after)))
    return list(_alternating(spans))


def shared_start(before: Any, after: Any, steps: Steps) -> int:
    """Return how many items, or characters, both begin with."""
    end = min(len(before), len(after))
    at = 0
    # Chunks are halved where they differ, so that the place is found in few steps.
    size = CHUNK
    while at < end and size:
        stop = min(at + size, end)
        steps.scanned += stop - at
        if same(before[at:stop], after[at:stop]):
            at = stop
        else:
            size //= 2
    return at


def shared_end(before: Any, after: Any, steps: Steps, start: int = 0) -> int:
    """Return how many items, or characters, both end with, without the first `start`."""
    end = min(len(before), len(after)) - start
    at = 0
    size = CHUNK
    while at < end and size:
        stop = min(at + size, end)
        steps.scanned += stop - at
        before_chunk = before[len(before) - stop : len(before) - at]
        after_chunk = after[len(after) - stop : len(after) - at]
        if same(before_chunk, after_chunk):
            at = stop
        else:
            size //= 2
    return at


def _spans_between(
    before: Sequence[Any],
    after: Sequence[Any],
    steps: Steps,
) -> Iterator[Span]:
    """Yield the spans of two sequences without equal ends; some may be empty."""
    if not before or not after:
        yield Span(False, 0, len(before), 0, len(after))
        return
    if len(before) + len(after) > MOST_ITEMS:
        yield from _spans_at_equal_offsets(before, after, steps)
        return

    # Small numbers are their own hashes, and the library compares hashes only, so two
    # items that differ are never taken for the same.
    numbers: dict[bytes, int] = {}
    olds = _numbered(before, numbers)
    news = _numbered(after, numbers)
    steps.scanned += len(olds) + len(news)
    old_start = 0
    new_start = 0
    for old_anchor, new_anchor in _anchors(olds, news):
        old_gap = olds[old_start:old_anchor]
        new_gap = news[new_start:new_anchor]
        for span in _spans_of_gap(old_gap, new_gap, steps):
            yield _moved(span, old_start, new_start)
        yield Span(True, old_anchor, old_anchor + 1, new_anchor, new_anchor + 1)
        old_start = old_anchor + 1
        new_start = new_anchor + 1
    for span in _spans_of_gap(olds[old_start:], news[new_start:], steps):
        yield _moved(span, old_start, new_start)


def _numbered(items: Iterable[Any], numbers: dict[bytes, int]) -> list[int]:
    """Return a number for each item: the same one for the same JSON value."""
    numbered = []
    for item in items:
        numbered.append(numbers.setdefault(encode(item), len(numbers)))
    return numbered


Pair = tuple[int, int]
"""The places of two equal items in `before` and in `after`."""


def _anchors(olds: Sequence[int], news: Sequence[int]) -> list[Pair]:
    """Return the items that occur once on each side, as far as their order is the same:
    the longest such subsequence. They cost no steps.
    """
    new_places = _places_of_single(news)
    pairs: list[Pair] = []
    for number, old_at in _places_of_single(olds).items():
        if number in new_places:
            pairs.append((old_at, new_places[number]))
    return _longest_rising(pairs)


def _places_of_single(numbers: Sequence[int]) -> dict[int, int]:
    """Return the place of each number that occurs once, in order."""
    places: dict[int, int] = {}
    for at, number in enumerate(numbers):
        places[number] = -1 if number in places else at
    return {number: at for number, at in places.items() if at >= 0}


def _longest_rising(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence of pairs that rises on the second side too.
    `pairs` rise on the first.
    """
    # Patience sorting. For each length, `tails` has the smallest place at which a
    # subsequence of that length ends, and `ends` the index of that pair.
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for index, (_, new_at) in enumerate(pairs):
        length = bisect_left(tails, new_at)
        previous.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [new_at]
        ends[length : length + 1] = [index]

    rising: list[Pair] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        rising.append(pairs[index])
        index = previous[index]
    rising.reverse()
    return rising


def _spans_of_gap(
    olds: Sequence[int],
    news: Sequence[int],
    steps: Steps,
) -> Iterator[Span]:
    """Yield the spans between two anchors: those of a script that keeps as many items
    as any can, or, beyond the bounds, those at equal offsets.
    """
    if not olds or not news:
        yield Span(False, 0, len(olds), 0, len(news))
        return
    pairs = len(olds) * len(news)
    if pairs > MOST_PAIRS or not steps.take(-(-pairs // PAIRS_IN_STEP)):
        yield from _spans_at_equal_offsets(olds, news, steps)
        return
    # Levenshtein's distance would count a replaced item as one edit, and would rather
    # replace [A, x] by [x, B] item by item than keep x.
    for operation in Indel.opcodes(olds, news):
        yield Span(
            operation.tag == "equal",
            operation.src_start,
            operation.src_end,
            operation.dest_start,
            operation.dest_end,
        )


def _spans_at_equal_offsets(
    before: Sequence[Any],
    after: Sequence[Any],
    steps: Steps,
) -> Iterator[Span]:
    """Yield the spans of equal and replaced items of two sequences of one length; one
    replaced span where the lengths differ.
    """
    length = len(before)
    if length != len(after):
        yield Span(False, 0, length, 0, len(after))
        return
    steps.scanned += length
    start = 0
    is_equal = False
    spans = 0
    for at, (old, new) in enumerate(zip(before, after, strict=True)):
        # Values that differ even to Python need no closer look.
        is_same = old == new and same(old, new)
        if is_same == is_equal:
            continue
        yield Span(is_equal, start, at, start, at)
        start = at
        is_equal = not is_equal
        spans += 1
        # A span takes more memory than a short item does.
        if spans == MOST_SPANS:
            is_equal = False
            break
    yield Span(is_equal, start, length, start, length)


def _moved(span: Span, in_before: int, in_after: int) -> Span:
    """Return the span of parts that begin at these places as one of the whole."""
    return Span(
        span.equal,
        in_before + span.a,
        in_before + span.b,
        in_after + span.c,
        in_after + span.d,
    )


def _alternating(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans without empty ones, and neighbours of one kind as one."""
    last: Span | None = None
    for span in spans:
        if span.a == span.b and span.c == span.d:
            continue
        if last is None:
            last = span
        elif last.equal == span.equal:
            last = Span(span.equal, last.a, span.b, last.c, span.d)
        else:
            yield last
            last = span
    if last is not None:
        yield last
