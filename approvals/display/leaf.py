"""Values as single texts, and keys as labels: no two values, and no two keys, look the
same. Pure.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from approvals.display.value_types import NOTHING_DECLARED, TEXT, ValueType
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import escaped, json_text, label_of, said_of_rest
from orchestrator.engine.values.canonical import encode

LONGEST = 2000
"""The most characters of one value that are shown in one place; a longer value is shown
with its length and fingerprint.
"""
LONGEST_NUMBER = 400
FEW = 8
"""The most plain values that a list may have to be shown one below the other in the
place of one value.
"""


class _Absent:
    """No value at all; `None` is the value null."""

    def __bool__(self) -> bool:
        return False


ABSENT: Any = _Absent()
NOTHING = {
    "null": "not set",
    "text": "empty text",
    "list": "none",
    "object": "no fields",
    "absent": "not there",
}
REMOVED = "removed"
ERASED = "erased"
_PLACEHOLDERS = {*NOTHING.values(), REMOVED, ERASED}
_WORDS = frozenset(
    {
        *_PLACEHOLDERS,
        "yes",
        "no",
        "true",
        "false",
        "null",
        "none",
        "nil",
        "undefined",
        "—",
    }
)
_MISTAKABLE = re.compile(
    r"""[+\-−]?[\d.,'_]*\d[\d.,'_]*(e[+-]?\d+)?%?|[\[{"].*""", re.IGNORECASE | re.DOTALL
)


_AMOUNT = re.compile(r"(-?)(0|[1-9][0-9]*)(\.[0-9]+)?")
_ACCOUNT = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
SIGNS = {"EUR": "€", "GBP": "£", "USD": "$"}
"""The signs of currencies; other amounts follow the currency's code."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value as one text. `kind`: text; quoted (a text that could be mistaken for
    something else); number; amount (a text that is declared a decimal); account (an
    IBAN, whose `items` are its groups); truth; nothing; code (JSON); list (of `items`).
    `rest` describes what was cut.
    """

    kind: str
    text: str
    items: tuple["Leaf", ...] = ()
    rest: str = ""

    @property
    def unbroken(self) -> bool:
        """Return whether it is one word that must not be broken, such as an amount, an
        account or an id.
        """
        if self.kind in ("amount", "account"):
            return True
        if self.kind == "list" or len(self.text) > 34:
            return False
        return not _has_blanks(self.text)


def _has_blanks(text: str) -> bool:
    return any(map(str.isspace, text))


def leaf_of(
    value: Any,
    *,
    longest: int = LONGEST,
    declared: ValueType = NOTHING_DECLARED,
) -> Leaf:
    """Return the value as a reader sees it. `declared` is its type: a text that is
    declared an amount is formatted as one.
    """
    nothing = _kind_of_nothing(value)
    if nothing:
        return Leaf("nothing", NOTHING[nothing])
    if is_tombstone(value):
        return Leaf("nothing", ERASED)
    if isinstance(value, bool):
        return Leaf("truth", "yes" if value else "no")
    if isinstance(value, str):
        return _text(value, longest, declared)
    if isinstance(value, int | float):
        # If amounts are texts, a bare number is an oddity, and must not look like them.
        return Leaf("code" if declared.is_amount else "number", json.dumps(value))
    if is_short_list(value):
        of_item = declared.field("")
        return Leaf(
            "list", "", tuple(leaf_of(item, declared=of_item) for item in value)
        )
    return _code(value, longest)


def json_leaf(value: Any, *, longest: int = LONGEST, start: int = 0) -> Leaf:
    """Return the value as a line of JSON, texts in quotes; of a value longer than
    `longest`, the part from character `start` on.
    """
    if is_tombstone(value):
        return Leaf("nothing", ERASED)
    return _code(value, longest, start)


def _text(
    value: str,
    longest: int,
    declared: ValueType,
) -> Leaf:
    if declared.is_amount:
        return _amount(value, longest, declared.currency)
    if is_account(value):
        groups = []
        for at in range(0, len(value), 4):
            groups.append(Leaf("text", value[at : at + 4]))
        return Leaf("account", value, tuple(groups))
    needs_quotes = could_be_mistaken(value)
    # What a caller wrote to be read needs quotes only where nobody would see it.
    if declared is TEXT and value.strip() == value != "":
        needs_quotes = False
    kind = "quoted" if needs_quotes else "text"
    return Leaf(kind, value[:longest], rest=_rest_of(value, longest))


def _amount(
    value: str,
    longest: int,
    currency: str,
) -> Leaf:
    # The length first: Python reads no number of thousands of digits.
    match = _AMOUNT.fullmatch(value) if len(value) <= LONGEST_NUMBER else None
    if match is None:
        # If amounts are declared, every other text is an oddity, "€4,512.50" among
        # them.
        return Leaf("quoted", value[:longest], rest=_rest_of(value, longest))
    minus, whole, fraction = match.groups(default="")
    return Leaf("amount", f"{minus}{_sign_before(currency)}{int(whole):,}{fraction}")


def _sign_before(currency: str) -> str:
    if not currency:
        return ""
    return SIGNS.get(currency) or f"{currency} "


def is_account(text: str) -> bool:
    """Return whether a text is an IBAN: its form, and its check digits (ISO 7064,
    modulo 97).
    """
    if not _ACCOUNT.fullmatch(text):
        return False
    rearranged = text[4:] + text[:4]
    digits = "".join(str(int(letter, 36)) for letter in rearranged)
    return int(digits) % 97 == 1


def _kind_of_nothing(value: Any) -> str:
    """Return which kind of nothing a value is, a key of `NOTHING`; empty for any other
    value.
    """
    if value is None:
        return "null"
    if value is ABSENT:
        return "absent"
    if value == "":
        return "text"
    if value == []:
        return "list"
    return "object" if value == {} else ""


def is_short_list(value: Any) -> bool:
    """Return whether a value is a list of a few plain values."""
    if not isinstance(value, list) or len(value) > FEW:
        return False
    return all(map(_is_plain, value))


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 120
    return value is None or isinstance(value, int | float)


def _code(value: Any, longest: int, start: int = 0) -> Leaf:
    data = encode(value)
    text = data.decode()
    if len(text) <= longest:
        return Leaf("code", json_text(value))
    # A cut value is shown with its length and fingerprint, so none looks like another.
    part = text[start : start + longest]
    ellipsis = "…" if start else ""
    rest = said_of_rest(len(text) - len(part), data)
    return Leaf("code", f"{ellipsis}{escaped(part)}", rest=rest)


def _rest_of(text: str, longest: int) -> str:
    """Return the description of what is cut from a text; empty if nothing is."""
    if len(text) <= longest:
        return ""
    return said_of_rest(len(text) - longest, text.encode())


def could_be_mistaken(text: str) -> bool:
    """Return whether a text looks like a number, a word for no value, or JSON, and
    needs quotes to be distinguished from these.
    """
    # Blanks around a text are not seen.
    bare = text.strip()
    if len(bare) > LONGEST_NUMBER:
        return bare.startswith(("[", "{", '"'))
    if bare.casefold() in _WORDS or _MISTAKABLE.fullmatch(bare) is not None:
        return True
    # The groups of an account number are drawn with gaps; here the blanks are part of
    # the text.
    return _has_blanks(bare) and is_account("".join(bare.split()))


def label_of_path(path: tuple[str, ...]) -> str:
    """Return the keys that lead to a field, as a label."""
    return " › ".join(map(label_of, path))
