"""Texts as people can see them: what is invisible, turns the reading direction, or looks like something else, is
written out by number. Pure; pages, commands and whoever else shows a text of a run calls it.

Two texts that differ never give the same stretches, and never the same plain text.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

LONGEST_LABEL = 300
"""Characters that are kept of the label of a run or a held write; lists show it."""
LONGEST_FACT = 200
"""Of an indexed fact; the Django admin keeps as many of what it calls a row."""
LONGEST_JOB_ERROR = 2000
CUT = frozenset({LONGEST_LABEL, LONGEST_FACT, LONGEST_JOB_ERROR})
"""A text of such a length may have been longer: an erasure looks at its end."""
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
BLANK, LINE_END = "␣", "↵"
_OWN = frozenset(BLANK + LINE_END)
"""What the marks themselves are drawn with: where a text holds it, it is written out."""
_JOINING = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))
"""Hangul letters that melt into the one before them, as combining marks do."""
MOST_MARKS = 4
"""Combining marks in a row that some script needs; more hide what stands beside them."""
_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
_TURNED = re.compile(f"[{_RIGHT_TO_LEFT}]+(?: +[{_RIGHT_TO_LEFT}]+)*")
_STRAIGHT = re.compile(f"[^\\W_{_RIGHT_TO_LEFT}]")
_NEWLINES = r"(?P<end>(?<!\n)\n(?!\n))"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a text. `kind`: plain; odd (one character, written out); blank (blanks one would not see); end (the
    end of a line that could be taken for a wrapped one); turned (`inner` is read from right to left).
    """

    kind: str
    text: str
    inner: tuple["Stretch", ...] = ()


def stretches(text: str, *, starts: bool = True, ends: bool = True, code: bool = False) -> list[Stretch]:
    """The text in order. `starts` and `ends` say whether it is whole there, or goes on in another text; in `code`
    blanks that begin a line and line ends are part of its layout.
    """
    if _is_plain(text):
        return [Stretch("plain", text)] if text else []
    if _TURNED.search(text) and _STRAIGHT.search(text):
        return list(_turned(text, starts=starts, ends=ends, code=code))
    return list(_marked(text, starts=starts, ends=ends, code=code))


def visible_text(text: str) -> str:
    """The text as one line without markup, for titles, attributes and terminals."""
    return "".join(_written(one) for one in stretches(text))


def written_out(letter: str) -> str:
    """One character by its number."""
    return f"⟨U+{ord(letter):04X}⟩"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "  " not in text and not text.startswith(" ") and text[-1:] != " "


def _written(one: Stretch) -> str:
    if one.kind == "odd":
        return written_out(one.text)
    if one.kind == "blank":
        return BLANK * len(one.text)
    if one.kind == "turned":
        return "".join(_written(inner) for inner in one.inner)
    return one.text.replace("\n", LINE_END)


def _turned(text: str, *, starts: bool, ends: bool, code: bool) -> Iterator[Stretch]:
    """Where both directions meet, each stretch from right to left stands for itself: else a number beside it could be
    before or behind it in the text and look the same.
    """
    last = 0
    for found in _TURNED.finditer(text):
        first, end = found.span()
        if first > last:
            yield from _marked(text[last:first], starts=starts and last == 0, ends=False, code=code)
        inner = _marked(found.group(), starts=starts and first == 0, ends=ends and end == len(text), code=code)
        yield Stretch("turned", found.group(), tuple(inner))
        last = end
    if last < len(text):
        yield from _marked(text[last:], starts=False, ends=ends, code=code)


def _marked(text: str, *, starts: bool, ends: bool, code: bool) -> Iterator[Stretch]:
    last = 0
    for found in re.finditer(_pattern(frozenset(text), starts, ends, code), text):
        if found.start() > last:
            yield Stretch("plain", text[last : found.start()])
        yield from _found(text, found)
        last = found.end()
    if last < len(text):
        yield Stretch("plain", text[last:])


def _found(text: str, found: re.Match[str]) -> Iterator[Stretch]:
    kind, part = str(found.lastgroup), found.group()
    if kind == "marks":
        yield from _combined(text[found.start() - 1] if found.start() else "", part)
    elif kind == "edge":
        yield from (Stretch("end" if one == "\n" else "blank", one) for one in part)
    else:
        yield Stretch(kind, part)


def _combined(base: str, marks: str) -> Iterator[Stretch]:
    """Combining marks: as they are where they belong to the letter before them and to no other way of writing it."""
    lonely = not base or base.isspace() or is_odd(base)
    doubled = any(one == other for one, other in pairwise(marks))
    dotted = base in "ij" and "\u0307" in marks
    if lonely or doubled or dotted or unicodedata.normalize("NFC", base + marks) != base + marks:
        yield from (Stretch("odd", one) for one in marks)
        return
    yield Stretch("plain", marks[:MOST_MARKS])
    yield from (Stretch("odd", one) for one in marks[MOST_MARKS:])


@lru_cache(maxsize=256)
def _pattern(letters: frozenset[str], starts: bool, ends: bool, code: bool) -> re.Pattern[str]:
    """What must be looked at in a text of these letters."""
    odd = "".join(re.escape(one) for one in sorted(letters) if is_odd(one))
    marks = "".join(one for one in sorted(letters) if _is_mark(one) and not is_odd(one))
    wanted = [f"(?P<odd>[{odd}]|⟨(?=U\\+))" if odd else r"(?P<odd>⟨(?=U\+))"]
    wanted += [f"(?P<marks>[{marks}]+)"] if marks else []
    return re.compile("|".join([*wanted, *_blanks(starts, ends, code)]))


def _blanks(starts: bool, ends: bool, code: bool) -> list[str]:
    if code:
        return [r"(?P<blank>(?<=[^ \n]) {2,}|(?<=[^ \n]) +(?=\n))"]
    edges = [r"\A[ \n]+"] if starts else []
    edges += [r"[ \n]+\Z"] if ends else []
    found = [f"(?P<edge>{'|'.join(edges)})"] if edges else []
    return [*found, r"(?P<blank> {2,}|(?<=\n) +| +(?=\n))", _NEWLINES]


@lru_cache(maxsize=4096)
def is_odd(letter: str) -> bool:
    """Whether a character is written out wherever it stands: it cannot be seen, turns the direction, is a blank other
    than the common one, or is another way to write what looks the same.
    """
    if letter == "\n":
        return False
    category = unicodedata.category(letter)
    if category in _UNSEEN or (category == "Zs" and letter != " ") or letter in _OWN:
        return True
    return _is_in(letter, _EMPTY_LOOKING) or unicodedata.normalize("NFC", letter) != letter


@lru_cache(maxsize=4096)
def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M") or _is_in(letter, _JOINING)


def _is_in(letter: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(letter) <= last for first, last in ranges)
