"""JSON as people can see it: keys as labels, values as text, and the rest of a long
value as its length and fingerprint. Pure.

Elsewhere `visible_text` makes texts visible. Here characters are escaped as in JSON, so
that a value that is shown can be parsed again.
"""

import hashlib
import json
import re
from typing import Any

import orjson

from checkpoints.core.visible_text import TextPiece, stretches

_PLAIN_KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def label_of(key: str) -> str:
    """Return a key as a label: as words if no other key has the same ones, else the key
    itself in quotes.
    """
    if not _PLAIN_KEY.fullmatch(key):
        return json.dumps(key, ensure_ascii=False)
    # Two keys of this form never give the same words.
    words = key.replace("_", " ")
    first_letter = words[:1].upper()
    return first_letter + words[1:]


def json_text(value: Any) -> str:
    """Return a value as JSON on one line. Parsed again, it is the stored value."""
    return escaped(json.dumps(value, ensure_ascii=False))


def indented(value: Any) -> str:
    """Return a value as indented JSON, as it is stored apart from the blanks. Invisible
    characters are not yet `escaped`.
    """
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def escaped(text: str) -> str:
    """Return a piece of JSON with every invisible character as JSON writes it: by
    number.
    """
    visible = stretches(text, starts=False, ends=False, code=True)
    return "".join(map(_escaped, visible))


def _escaped(stretch: TextPiece) -> str:
    if stretch.kind == "turned":
        return "".join(map(_escaped, stretch.inner))
    # Blanks and line breaks stay: they belong to the layout.
    if stretch.kind == "odd":
        quoted = json.dumps(stretch.text)
        return quoted[1:-1]
    return stretch.text


def said_of_rest(number: int, data: bytes) -> str:
    """Return the text that replaces this many characters at the end of a long value. Its
    fingerprint makes any two values look different.
    """
    cut_off = f"{number:,} more characters"
    return f"… and {cut_off}, fingerprint {fingerprint(data)}"


def fingerprint(data: bytes) -> str:
    """Return a short hash of data that is too long to be compared by eye."""
    return hashlib.sha256(data).hexdigest()[:12]
