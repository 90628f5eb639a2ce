"""Two texts as one, with what went and what came marked. Pure, and bounded as edit scripts are."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from approvals.views.edit_script import MOST_ITEMS, Span, Steps, edit_script, shared_end, shared_start
from checkpoints.core.visible_json import fingerprint, said_of_rest

WORDWISE = 64 * 1024
"""Characters up to which what differs is compared word by word; more is compared line by line."""
LONGEST_WORD = 200
_TOKENS = re.compile(r"\s+|[^\s\w]|\w+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text. `state`: same, in (it came), out (it went), or gap (`text` says what is not shown).

    `starts` and `ends` say whether it begins or ends the whole text, so that blanks there must be drawn.
    """

    state: str
    text: str
    starts: bool = False
    ends: bool = False


def pieces(now: str, proposed: str, steps: Steps) -> list[Piece]:
    """Two texts as one. Where nothing was before, the new text as it is."""
    if not now or not proposed:
        text, state = proposed or now, "same" if proposed else "out"
        return [Piece(state, text, True, True)] if text else []
    start = shared_start(now, proposed, steps)
    start = _at_word(start, lambda at: _cuts(now, at) or _cuts(proposed, at))
    end = shared_end(now, proposed, steps, start)
    end = _at_word(end, lambda at: _cuts(now, len(now) - at) or _cuts(proposed, len(proposed) - at))
    b, d = len(now) - end, len(proposed) - end
    found = [Piece("same", now[:start])] if start else []
    found += _compared(now[start:b], proposed[start:d], steps)
    found += [Piece("same", now[b:])] if end else []
    return _with_ends(found)


def _at_word(at: int, cuts: Callable[[int], bool]) -> int:
    """The last place up to `at` at which no word is cut; `at` itself within a very long one."""
    for place in range(at, max(at - LONGEST_WORD, 0), -1):
        if not cuts(place):
            return place
    return at if at > LONGEST_WORD else 0


def _cuts(text: str, at: int) -> bool:
    """Whether two halves of a word, or of a stretch of blanks, meet there."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    return (before.isspace() and after.isspace()) or (_is_of_word(before) and _is_of_word(after))


def _is_of_word(letter: str) -> bool:
    # What is beyond ASCII may be a mark that belongs to the letter before it.
    return letter.isalnum() or letter == "_" or not (letter.isascii() or letter.isspace())


def _compared(now: str, proposed: str, steps: Steps) -> Iterator[Piece]:
    wordwise = len(now) + len(proposed) <= WORDWISE
    before, after = (_tokens(side, wordwise) for side in (now, proposed))
    for span in _joined(edit_script(before, after, steps), before):
        if span.equal:
            yield Piece("same", "".join(before[span.a : span.b]))
            continue
        for state, text in (("out", "".join(before[span.a : span.b])), ("in", "".join(after[span.c : span.d]))):
            if text:
                yield Piece(state, text, text.isspace(), text.isspace())


def _tokens(text: str, wordwise: bool) -> list[str]:
    """What is compared as one: words, or lines, or all of it where there are too many."""
    if wordwise:
        return _TOKENS.findall(text)
    return text.splitlines(keepends=True) if text.count("\n") < MOST_ITEMS else [text]


def _joined(spans: Sequence[Span], before: Sequence[str]) -> Iterator[Span]:
    """Replaced spans between which only blanks are equal as one: sentences are read, not words."""
    held: Span | None = None
    for number, span in enumerate(spans):
        between = held is not None and number + 1 < len(spans) and "".join(before[span.a : span.b]).isspace()
        if span.equal and not between:
            if held is not None:
                yield held
            held = None
            yield span
        else:
            held = span if held is None else Span(False, held.a, span.b, held.c, span.d)
    if held is not None:
        yield held


def _with_ends(found: Sequence[Piece]) -> list[Piece]:
    """The pieces, each told whether it begins or ends the old or the new text."""
    sides = [[n for n, one in enumerate(found) if one.state in ("same", side)] for side in ("out", "in")]
    first, last = {side[0] for side in sides if side}, {side[-1] for side in sides if side}
    return [replace(one, starts=one.starts or n in first, ends=one.ends or n in last) for n, one in enumerate(found)]


def folded(found: Sequence[Piece], *, longest: int, beside: int) -> list[Piece]:
    """Of equal stretches longer than `longest` only what stands `beside` a change."""
    result: list[Piece] = []
    changes = [number for number, one in enumerate(found) if one.state != "same"]
    for number, one in enumerate(found):
        head = beside if changes and changes[0] < number else 0
        tail = beside if changes and changes[-1] > number else 0
        if one.state != "same" or len(one.text) <= longest or not (head or tail):
            result.append(one)
            continue
        hidden = one.text[head : len(one.text) - tail]
        said = f"{len(hidden):,} characters are unchanged, fingerprint {fingerprint(hidden.encode())}"
        result += [Piece("same", one.text[:head], one.starts)] if head else []
        result.append(Piece("gap", said))
        result += [Piece("same", one.text[len(one.text) - tail :], False, one.ends)] if tail else []
    return result


def cut(found: Sequence[Piece], longest: int) -> list[Piece]:
    """The first `longest` characters; what was cut is said, with a fingerprint of all."""
    ends = list(accumulate(len(one.text) for one in found))
    if not ends or ends[-1] <= longest:
        return list(found)
    result = []
    for one, end in zip(found, ends, strict=True):
        result.append(replace(one, text=one.text[: longest - (end - len(one.text))], ends=False))
        if end >= longest:
            break
    whole = "\0".join(f"{one.state}{one.text}" for one in found)
    return [*result, Piece("gap", said_of_rest(ends[-1] - longest, whole.encode()))]


def stretch(found: Sequence[Piece], start: int, stop: int) -> list[Piece]:
    """The pieces of the characters from `start` to `stop`; a gap has none, and stands where it is."""
    result, at = [], 0
    for one in found:
        size = 0 if one.state == "gap" else len(one.text)
        first, last = max(start - at, 0), min(stop - at, size)
        if one.state == "gap" and start <= at < stop:
            result.append(one)
        elif first < last:
            starts, ends = one.starts and first == 0, one.ends and last == size
            result.append(Piece(one.state, one.text[first:last], starts, ends))
        at += size
    return result


def size_of(found: Sequence[Piece]) -> int:
    """The characters of all pieces together; a gap at the end counts as one."""
    size = sum(len(one.text) for one in found if one.state != "gap")
    return size + 1 if found and found[-1].state == "gap" else size
