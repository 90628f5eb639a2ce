"""Values as single texts, and keys as labels: no two values, and no two keys, look the same. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Any

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
NOTHING = {"null": "not set", "text": "empty text", "list": "empty list", "object": "no fields", "absent": "not there"}
REMOVED = "removed"
ERASED = "erased"
_TOLD = {*NOTHING.values(), REMOVED, ERASED}
_WORDS = frozenset({*_TOLD, "yes", "no", "true", "false", "null", "none", "nil", "undefined", "—"})
_MISTAKABLE = re.compile(r"""[+\-−]?[\d.,'_]*\d[\d.,'_]*(e[+-]?\d+)?%?|[\[{"].*""", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value as one text. `kind`: text; quoted (a text that could be taken for something else); number; truth;
    nothing; code (JSON); list (of `items`). `more` says what was cut.
    """

    kind: str
    text: str
    items: tuple["Leaf", ...] = ()
    more: str = ""

    @property
    def unbroken(self) -> bool:
        """Whether it is one word, as amounts, accounts and ids are, that no line may break."""
        return self.kind != "list" and len(self.text) <= 34 and not any(letter.isspace() for letter in self.text)


def leaf_of(value: Any, *, longest: int = LONGEST) -> Leaf:
    """The value as a reader sees it."""
    if value is None or value is ABSENT or value == "" or value == [] or value == {}:
        return Leaf("nothing", NOTHING[_kind_of(value)])
    if is_tombstone(value):
        return Leaf("nothing", ERASED)
    if isinstance(value, bool):
        return Leaf("truth", "yes" if value else "no")
    if isinstance(value, str):
        return Leaf("quoted" if could_be_mistaken(value) else "text", value[:longest], more=_more(value, longest))
    if isinstance(value, int | float):
        return Leaf("number", json.dumps(value))
    if is_short_list(value):
        return Leaf("list", "", tuple(leaf_of(one) for one in value))
    return _code(value, longest)


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
    return bare.casefold() in _WORDS or _MISTAKABLE.fullmatch(bare) is not None


def label_of_path(path: tuple[str, ...]) -> str:
    """The keys that lead to a field."""
    return " › ".join(label_of(key) for key in path)
