"""Texts as people can see them: every character that is invisible, turns the reading
direction, or looks like another one, is written out by number. Pure; pages, commands
and all other code that shows a text of a run calls it.

Two texts that differ never give the same stretches, and never the same plain text.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

LONGEST_LABEL = 300
"""The most characters that are stored of the label of a run or a held write; lists show
it.
"""
LONGEST_FACT = 200
"""The most characters of an indexed fact; the Django admin stores as many of the name
of a row.
"""
LONGEST_JOB_ERROR = 2000
CUT = frozenset({LONGEST_LABEL, LONGEST_FACT, LONGEST_JOB_ERROR})
"""Lengths at which texts are cut off: an erasure searches the end of such a text for
the beginning of a word.
"""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_EMPTY_LOOKING = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer vowels that are not drawn
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x2800, 0x2800),  # Braille blank
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFFA0, 0xFFA0),
    (0x16FE4, 0x16FE4),
    (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF),  # tags and more variation selectors
)
"""Letters and marks by category that draw nothing."""
BLANK = "␣"
LINE_END = "↵"
_OWN = frozenset(BLANK + LINE_END)
"""The characters by which blanks and line breaks are shown: those that a text contains
are written out.
"""
_JOINING = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))
"""Hangul letters that merge with the one before them, as combining marks do."""
MOST_MARKS = 4
"""The most combining marks in a row that some script needs; more of them hide the text
beside them.
"""
_RIGHT_TO_LEFT = (
    "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
)
# Blanks between two such parts are read in their direction, so they belong to them.
_TURNED = re.compile(f"[{_RIGHT_TO_LEFT}]+(?: +[{_RIGHT_TO_LEFT}]+)*")
_STRAIGHT = re.compile(f"[^\\W_{_RIGHT_TO_LEFT}]")
# Two line breaks make an empty line, which cannot be mistaken for a wrapped one.
_NEWLINES = r"(?P<end>(?<!\n)\n(?!\n))"


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a text. `kind`: plain; odd (one character, written out); blank (blanks
    that would not be seen); end (the end of a line that could be taken for a wrapped
    one); turned (`inner` is read from right to left).
    """

    kind: str
    text: str
    inner: tuple["TextPiece", ...] = ()


def stretches(
    text: str,
    *,
    starts: bool = True,
    ends: bool = True,
    code: bool = False,
) -> list[TextPiece]:
    """Split a text into stretches, in order. `starts`, `ends`: false if more text comes
    before it, after it. In `code`, leading blanks and line breaks are layout.
    """
    if not text:
        return []
    if _is_plain(text):
        return [TextPiece("plain", text)]
    if _TURNED.search(text) and _STRAIGHT.search(text):
        return list(_of_both_directions(text, starts=starts, ends=ends, code=code))
    return list(_of_one_direction(text, starts=starts, ends=ends, code=code))


def visible_text(text: str) -> str:
    """Return the text as one line without markup, for titles, attributes and
    terminals.
    """
    return "".join(map(_written, stretches(text)))


def written_out(letter: str) -> str:
    """Return one character by its number."""
    return f"⟨U+{ord(letter):04X}⟩"


def _is_plain(text: str) -> bool:
    """Return whether a text is certainly one plain stretch, without looking at each
    character of it.
    """
    return (
        text.isascii()
        and text.isprintable()
        and "  " not in text
        and not text.startswith(" ")
        and not text.endswith(" ")
    )


def _written(stretch: TextPiece) -> str:
    if stretch.kind == "odd":
        return written_out(stretch.text)
    if stretch.kind == "blank":
        return BLANK * len(stretch.text)
    if stretch.kind == "turned":
        return "".join(map(_written, stretch.inner))
    return stretch.text.replace("\n", LINE_END)


def _of_both_directions(
    text: str,
    *,
    starts: bool,
    ends: bool,
    code: bool,
) -> Iterator[TextPiece]:
    """Yield the stretches of a text in which both directions meet. Each part from right
    to left is a separate stretch: otherwise a number beside it could be before or after
    it in the text and look the same.
    """
    end_of_last = 0
    for match in _TURNED.finditer(text):
        start, end = match.span()
        is_first = start == 0
        is_last = end == len(text)
        if start > end_of_last:
            yield from _of_one_direction(
                text[end_of_last:start],
                starts=starts and end_of_last == 0,
                ends=False,
                code=code,
            )
        inner = _of_one_direction(
            match.group(),
            starts=starts and is_first,
            ends=ends and is_last,
            code=code,
        )
        yield TextPiece("turned", match.group(), tuple(inner))
        end_of_last = end

    if end_of_last < len(text):
        rest = text[end_of_last:]
        yield from _of_one_direction(rest, starts=False, ends=ends, code=code)


def _of_one_direction(
    text: str,
    *,
    starts: bool,
    ends: bool,
    code: bool,
) -> Iterator[TextPiece]:
    end_of_last = 0
    pattern = _pattern(frozenset(text), starts, ends, code)
    for match in pattern.finditer(text):
        if match.start() > end_of_last:
            yield TextPiece("plain", text[end_of_last : match.start()])
        yield from _of_match(text, match)
        end_of_last = match.end()
    if end_of_last < len(text):
        yield TextPiece("plain", text[end_of_last:])


def _of_match(text: str, match: re.Match[str]) -> Iterator[TextPiece]:
    """Yield the stretches of a part that the pattern of a text matches. The name of its
    group is their kind, for most of them.
    """
    kind = str(match.lastgroup)
    part = match.group()
    if kind == "marks":
        base = ""
        if match.start():
            base = text[match.start() - 1]
        yield from _of_marks(base, part)
    elif kind == "edge":
        for letter in part:
            if letter == "\n":
                yield TextPiece("end", letter)
            else:
                yield TextPiece("blank", letter)
    else:
        yield TextPiece(kind, part)


def _of_marks(base: str, marks: str) -> Iterator[TextPiece]:
    """Yield the stretches of combining marks after a letter, or after none."""
    # Marks that cannot be seen, or not for what they are, are written out, each of them.
    most_plain = MOST_MARKS
    if not _are_seen_on(base, marks):
        most_plain = 0
    if most_plain:
        yield TextPiece("plain", marks[:most_plain])
    for mark in marks[most_plain:]:
        yield TextPiece("odd", mark)


def _are_seen_on(base: str, marks: str) -> bool:
    """Return whether combining marks belong to the letter before them, can each be seen
    there, and are not another way of writing what looks the same.
    """
    if not base or base.isspace() or is_odd(base):
        return False
    # A mark covers the same mark before it.
    if any(mark == next_mark for mark, next_mark in pairwise(marks)):
        return False
    # These letters have a dot already.
    if base in "ij" and "\u0307" in marks:
        return False
    written = base + marks
    return unicodedata.normalize("NFC", written) == written


@lru_cache(maxsize=256)
def _pattern(
    letters: frozenset[str],
    starts: bool,
    ends: bool,
    code: bool,
) -> re.Pattern[str]:
    """Return the pattern of everything in a text of these letters that is not plain."""
    odd = ""
    marks = ""
    for letter in sorted(letters):
        if is_odd(letter):
            odd += re.escape(letter)
        elif _is_mark(letter):
            marks += letter

    alternatives = []
    if odd:
        alternatives.append(f"[{odd}]")
    # A text could itself contain a number as `written_out` gives it.
    alternatives.append(r"⟨(?=U\+)")
    patterns = [f"(?P<odd>{'|'.join(alternatives)})"]
    if marks:
        patterns.append(f"(?P<marks>[{marks}]+)")
    patterns += _patterns_of_blanks(starts, ends, code)
    return re.compile("|".join(patterns))


def _patterns_of_blanks(
    starts: bool,
    ends: bool,
    code: bool,
) -> list[str]:
    if code:
        return [r"(?P<blank>(?<=[^ \n]) {2,}|(?<=[^ \n]) +(?=\n))"]
    edges = []
    if starts:
        edges.append(r"\A[ \n]+")
    if ends:
        edges.append(r"[ \n]+\Z")

    # The edges come first: they are matched whole, whatever blanks are within.
    patterns = []
    if edges:
        patterns.append(f"(?P<edge>{'|'.join(edges)})")
    patterns.append(r"(?P<blank> {2,}|(?<=\n) +| +(?=\n))")
    patterns.append(_NEWLINES)
    return patterns


@lru_cache(maxsize=4096)
def is_odd(letter: str) -> bool:
    """Return whether a character is written out wherever it is: it cannot be seen,
    turns the direction, is a blank other than the common one, or is another way to
    write what looks the same.
    """
    # A control character by category, but line breaks are shown as a separate kind.
    if letter == "\n":
        return False
    category = unicodedata.category(letter)
    if category in _UNSEEN or letter in _OWN:
        return True
    if category == "Zs" and letter != " ":
        return True
    if _is_in(letter, _EMPTY_LOOKING):
        return True
    return unicodedata.normalize("NFC", letter) != letter


@lru_cache(maxsize=4096)
def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M") or _is_in(letter, _JOINING)


def _is_in(letter: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(letter) <= last for first, last in ranges)
