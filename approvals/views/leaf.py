"""Values as single texts, and keys as labels: no two values, and no two keys, look the same. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Any

from approvals.views.value_types import NOTHING_DECLARED, ValueType
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import escaped, json_text, label_of, said_of_rest
from orchestrator.engine.canonical import encode

LONGEST = 2000
"""Characters of one value that are shown in one place; of a longer one its length and fingerprint are shown too."""
LONGEST_NUMBER = 400
FEW = 8
"""Plain values that a list may have to be shown one under the other in the place of one value."""


class _Absent:
    """No value at all, where `None` is the value null."""

    def __bool__(self) -> bool:
        return False


ABSENT: Any = _Absent()
NOTHING = {"null": "not set", "text": "empty text", "list": "none", "object": "no fields", "absent": "not there"}
REMOVED = "removed"
ERASED = "erased"
_TOLD = {*NOTHING.values(), REMOVED, ERASED}
_WORDS = frozenset({*_TOLD, "yes", "no", "true", "false", "null", "none", "nil", "undefined", "—"})
_MISTAKABLE = re.compile(r"""[+\-−]?[\d.,'_]*\d[\d.,'_]*(e[+-]?\d+)?%?|[\[{"].*""", re.IGNORECASE | re.DOTALL)


_AMOUNT = re.compile(r"(-?)(0|[1-9][0-9]*)(\.[0-9]+)?")
_ACCOUNT = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
SIGNS = {"EUR": "€", "GBP": "£", "USD": "$"}
"""The signs of currencies; of others the code stands before the amount."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value as one text. `kind`: text; quoted (a text that could be taken for something else); number; amount (a text
    that is declared a decimal); account (an IBAN, whose `items` are its groups); truth; nothing; code (JSON); list (of
    `items`). `more` says what was cut.
    """

    kind: str
    text: str
    items: tuple["Leaf", ...] = ()
    more: str = ""

    @property
    def unbroken(self) -> bool:
        """Whether it is one word, as amounts, accounts and ids are, that no line may break."""
        if self.kind in ("amount", "account"):
            return True
        return self.kind != "list" and len(self.text) <= 34 and not any(letter.isspace() for letter in self.text)


def leaf_of(value: Any, *, longest: int = LONGEST, declared: ValueType = NOTHING_DECLARED) -> Leaf:
    """The value as a reader sees it. `declared` is its type: what it declares an amount reads as such."""
    if value is None or value is ABSENT or value == "" or value == [] or value == {}:
        return Leaf("nothing", NOTHING[_kind_of(value)])
    if is_tombstone(value):
        return Leaf("nothing", ERASED)
    if isinstance(value, bool):
        return Leaf("truth", "yes" if value else "no")
    if isinstance(value, str):
        return _text(value, longest, declared)
    if isinstance(value, int | float):
        # Where texts are amounts a bare number is an oddity, and must not look like one of them.
        return Leaf("code" if declared.is_amount else "number", json.dumps(value))
    if is_short_list(value):
        return Leaf("list", "", tuple(leaf_of(item, declared=declared.field("")) for item in value))
    return _code(value, longest)


def _text(value: str, longest: int, declared: ValueType) -> Leaf:
    amount = _AMOUNT.fullmatch(value) if len(value) <= LONGEST_NUMBER and declared.is_amount else None
    if amount:
        minus, whole, fraction = amount.groups(default="")
        return Leaf("amount", f"{minus}{_sign_before(declared.currency)}{int(whole):,}{fraction}")
    # Where amounts are declared every other text is an oddity, "€4,512.50" among them.
    if declared.is_amount:
        return Leaf("quoted", value[:longest], more=_more(value, longest))
    if is_account(value):
        groups = tuple(Leaf("text", value[at : at + 4]) for at in range(0, len(value), 4))
        return Leaf("account", value, groups)
    return Leaf("quoted" if could_be_mistaken(value) else "text", value[:longest], more=_more(value, longest))


def _sign_before(currency: str) -> str:
    if not currency:
        return ""
    return SIGNS.get(currency) or f"{currency} "


def is_account(text: str) -> bool:
    """Return whether a text is an IBAN: its form, and its check digits (ISO 7064, modulo 97)."""
    if not _ACCOUNT.fullmatch(text):
        return False
    turned = text[4:] + text[:4]
    return int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1


def _kind_of(value: Any) -> str:
    if value is None or value is ABSENT:
        return "null" if value is None else "absent"
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else "object"


def is_short_list(value: Any) -> bool:
    """Whether it is a list of a few plain values."""
    plain = (str, int, float, type(None))
    return (
        isinstance(value, list)
        and len(value) <= FEW
        and all(isinstance(one, plain) and len(one if isinstance(one, str) else "") <= 120 for one in value)
    )


def _code(value: Any, longest: int) -> Leaf:
    data = encode(value)
    if len(data) <= longest:
        return Leaf("code", json_text(value))
    return Leaf("code", escaped(data[:longest].decode(errors="ignore")), more=said_of_rest(len(data) - longest, data))


def _more(text: str, longest: int) -> str:
    return said_of_rest(len(text) - longest, text.encode()) if len(text) > longest else ""


def could_be_mistaken(text: str) -> bool:
    """Whether a text looks like a number, a word for no value, or JSON, so that quotes must tell it from these."""
    bare = text.strip()
    if len(bare) > LONGEST_NUMBER:
        return bare.startswith(("[", "{", '"'))
    if bare.casefold() in _WORDS or _MISTAKABLE.fullmatch(bare) is not None:
        return True
    # The groups of an account number are drawn with gaps; here the blanks are part of the text.
    return any(letter.isspace() for letter in bare) and is_account("".join(bare.split()))


def label_of_path(path: tuple[str, ...]) -> str:
    """The keys that lead to a field."""
    return " › ".join(label_of(key) for key in path)
