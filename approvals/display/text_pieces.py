"""Two texts as one, with what was removed and what was added marked. Pure, and bounded
as edit scripts are.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from approvals.display.edit_script import (
    MOST_ITEMS,
    Span,
    Steps,
    edit_script,
    shared_end,
    shared_start,
)
from checkpoints.core.visible_json import fingerprint

WORDWISE = 64 * 1024
"""The most characters up to which the differing part is compared word by word; a longer
one is compared line by line.
"""
LONGEST_WORD = 200
_TOKENS = re.compile(r"\s+|[^\s\w]|\w+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text. `state`: same, in (added), out (removed), or gap (`text` says
    what is not shown).

    `starts` and `ends` are true where it begins or ends the whole text, so that blanks
    there must be drawn.
    """

    state: str
    text: str
    starts: bool = False
    ends: bool = False


def pieces(
    now: str,
    proposed: str,
    steps: Steps,
    *,
    compared: bool = True,
) -> list[Piece]:
    """Return two texts as one; if one is empty, the other unchanged. If they are not
    `compared`, everything between equal beginnings and ends counts as replaced.
    """
    if not now and not proposed:
        return []
    if not now:
        return [Piece("same", proposed, True, True)]
    if not proposed:
        return [Piece("out", now, True, True)]

    # Equal beginnings and ends stop at whole words.
    start = shared_start(now, proposed, steps)
    start = _at_word(start, lambda at: _cuts(now, at) or _cuts(proposed, at))
    end = shared_end(now, proposed, steps, start)
    end = _at_word(
        end, lambda at: _cuts(now, len(now) - at) or _cuts(proposed, len(proposed) - at)
    )

    now_end = len(now) - end
    proposed_end = len(proposed) - end
    result: list[Piece] = []
    if start:
        result.append(Piece("same", now[:start]))
    old = now[start:now_end]
    new = proposed[start:proposed_end]
    result += _compared(old, new, steps) if compared else _replaced(old, new)
    if end:
        result.append(Piece("same", now[now_end:]))
    return _with_ends(result)


def _at_word(at: int, cuts: Callable[[int], bool]) -> int:
    """Return the last place up to `at` at which no word is cut; `at` itself within a
    very long one.
    """
    for place in range(at, max(at - LONGEST_WORD, 0), -1):
        if not cuts(place):
            return place
    return at if at > LONGEST_WORD else 0


def _cuts(text: str, at: int) -> bool:
    """Return whether two halves of a word, or of a stretch of blanks, meet there."""
    if not 0 < at < len(text):
        return False
    before = text[at - 1]
    after = text[at]
    if before.isspace() and after.isspace():
        return True
    return _is_of_word(before) and _is_of_word(after)


def _is_of_word(letter: str) -> bool:
    if letter.isalnum() or letter == "_":
        return True
    # A character beyond ASCII may be a mark that belongs to the letter before it.
    return not (letter.isascii() or letter.isspace())


def _compared(
    now: str,
    proposed: str,
    steps: Steps,
) -> Iterator[Piece]:
    wordwise = len(now) + len(proposed) <= WORDWISE
    before = _tokens(now, wordwise)
    after = _tokens(proposed, wordwise)
    for span in _joined(edit_script(before, after, steps), before):
        old = "".join(before[span.a : span.b])
        if span.equal:
            yield Piece("same", old)
            continue
        yield from _replaced(old, "".join(after[span.c : span.d]))


def _replaced(old: str, new: str) -> Iterator[Piece]:
    if old:
        yield Piece("out", old, old.isspace(), old.isspace())
    if new:
        yield Piece("in", new, new.isspace(), new.isspace())


def _tokens(text: str, wordwise: bool) -> list[str]:
    """Return the parts that are compared: words, or lines, or the whole text where it
    has too many lines.
    """
    if wordwise:
        return _TOKENS.findall(text)
    if text.count("\n") < MOST_ITEMS:
        return text.splitlines(keepends=True)
    return [text]


def _joined(spans: Sequence[Span], before: Sequence[str]) -> Iterator[Span]:
    """Join replaced spans that are separated by equal blanks only: people read
    sentences, not words.
    """
    replaced: Span | None = None
    for number, span in enumerate(spans):
        # Spans alternate, so an equal span that is not the last has a replaced one
        # after it.
        is_last = number + 1 == len(spans)
        if span.equal and not _is_blank_between(span, before, replaced, is_last):
            if replaced is not None:
                yield replaced
            replaced = None
            yield span
        elif replaced is None:
            replaced = span
        else:
            replaced = Span(False, replaced.a, span.b, replaced.c, span.d)
    if replaced is not None:
        yield replaced


def _is_blank_between(
    span: Span,
    before: Sequence[str],
    replaced: Span | None,
    is_last: bool,
) -> bool:
    """Return whether a span has only blanks, with replaced spans on both sides."""
    if replaced is None or is_last:
        return False
    return "".join(before[span.a : span.b]).isspace()


def _with_ends(unmarked: Sequence[Piece]) -> list[Piece]:
    """Return the pieces, each marked where it begins or ends the old or the new text."""
    firsts: set[int] = set()
    lasts: set[int] = set()
    # Removed pieces belong to the old text only, added ones to the new text only.
    for side in ("out", "in"):
        of_side = [
            number
            for number, piece in enumerate(unmarked)
            if piece.state in ("same", side)
        ]
        if of_side:
            firsts.add(of_side[0])
            lasts.add(of_side[-1])
    marked = []
    for number, piece in enumerate(unmarked):
        starts = piece.starts or number in firsts
        ends = piece.ends or number in lasts
        marked.append(replace(piece, starts=starts, ends=ends))
    return marked


def folded(
    unfolded: Sequence[Piece],
    *,
    longest: int,
    beside: int,
) -> list[Piece]:
    """Fold equal stretches longer than `longest`, except for the characters `beside` a
    change.
    """
    # The places of the first and the last change decide on which sides context is
    # shown.
    changes = [number for number, piece in enumerate(unfolded) if piece.state != "same"]
    # Without a change nothing stands beside one, and nothing is folded.
    if not changes:
        return list(unfolded)
    result: list[Piece] = []
    for number, piece in enumerate(unfolded):
        if piece.state != "same" or len(piece.text) <= longest:
            result.append(piece)
            continue
        head = beside if changes[0] < number else 0
        tail = beside if changes[-1] > number else 0
        result += _folded_piece(piece, head, tail)
    return result


def _folded_piece(
    piece: Piece,
    head: int,
    tail: int,
) -> Iterator[Piece]:
    """Yield the first `head` and the last `tail` characters of an equal stretch, with a
    gap between them.
    """
    text = piece.text
    hidden = text[head : len(text) - tail]
    if head:
        yield Piece("same", text[:head], piece.starts)
    yield Piece(
        "gap",
        f"{len(hidden):,} characters are unchanged, fingerprint"
        f" {fingerprint(hidden.encode())}",
    )
    if tail:
        yield Piece("same", text[len(text) - tail :], False, piece.ends)


def stretch(
    whole: Sequence[Piece],
    start: int,
    stop: int,
) -> list[Piece]:
    """Return the pieces of the characters from `start` to `stop`; a gap has no
    characters, and stays where it is.
    """
    result: list[Piece] = []
    at = 0
    for piece in whole:
        if piece.state == "gap":
            if start <= at < stop:
                result.append(piece)
            continue
        size = len(piece.text)
        # The part of the piece that is on the page.
        first = max(start - at, 0)
        last = min(stop - at, size)
        if first < last:
            starts = piece.starts and first == 0
            ends = piece.ends and last == size
            result.append(Piece(piece.state, piece.text[first:last], starts, ends))
        at += size
    return result


def size_of(whole: Sequence[Piece]) -> int:
    """Return the number of characters of all pieces; a gap at the end counts as one, so
    that it has a place on the last page.
    """
    size = sum(len(piece.text) for piece in whole if piece.state != "gap")
    ends_with_gap = bool(whole) and whole[-1].state == "gap"
    return size + 1 if ends_with_gap else size
