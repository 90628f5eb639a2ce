"""JSON as people can see it: keys as labels, values as text, and what is too long as its length and fingerprint. Pure.

Texts are made visible by `visible_text`; here it is done as JSON does it, so that what is shown can be read back.
"""

import hashlib
import json
import re
from typing import Any

import orjson

from checkpoints.core.visible_text import Stretch, stretches

_PLAIN_KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def label_of(key: str) -> str:
    """A key as a label: as words where only this key gives them, else the key itself in quotes."""
    if not _PLAIN_KEY.fullmatch(key):
        return json.dumps(key, ensure_ascii=False)
    words = key.replace("_", " ")
    return words[:1].upper() + words[1:]


def json_text(value: Any) -> str:
    """A value as JSON on one line. Read again, it is the value that is kept."""
    return escaped(json.dumps(value, ensure_ascii=False))


def indented(value: Any) -> str:
    """A value as indented JSON, as it is kept but for the blanks. What cannot be seen is not yet `escaped`."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def escaped(text: str) -> str:
    """A stretch of JSON with everything that cannot be seen as JSON writes it: by number."""
    return "".join(_escaped(one) for one in stretches(text, starts=False, ends=False, code=True))


def _escaped(one: Stretch) -> str:
    if one.kind == "turned":
        return "".join(_escaped(inner) for inner in one.inner)
    return json.dumps(one.text)[1:-1] if one.kind == "odd" else one.text


def said_of_rest(number: int, data: bytes) -> str:
    """What stands in the place of so many characters that were cut from a value: with it no two values look alike."""
    return f"… and {number:,} more characters, fingerprint {fingerprint(data)}"


def fingerprint(data: bytes) -> str:
    """A short hash of what is too long to be compared by eye."""
    return hashlib.sha256(data).hexdigest()[:12]
