"""The schemas that callers send with items. An author's schema is code that was read;
a caller's is not, so what judging it may cost is bounded. Pure.
"""

import re
from typing import Any

from orchestrator.engine.errors import InvalidValue

LONGEST_PATTERN = 500
MOST_CHOICES = 1
"""The most repeats, options and alternatives of a pattern: what it can match in more
ways than one.
"""
MOST_CHOICES_ANCHORED = 2
"""The most of a pattern that begins with ^: it is tried at one place."""
LONGEST_MATCHED = 100
"""The most characters of a text that a pattern is tried on: with so few, each pattern
that is let through costs less than a millisecond.
"""
PATTERN_OF_DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
"""The pattern that pydantic writes for a Decimal, which has more choices."""
LONGEST_DECIMAL = 40
"""The most characters of a text that it is tried on."""
DEEPEST = 32
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DATA = frozenset({"const", "default", "enum", "examples"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "properties"})
_REFUSED = {
    "patternProperties": "patterns of names are not judged here",
    "unevaluatedItems": "write items: false",
    "unevaluatedProperties": "write additionalProperties: false",
    "$dynamicRef": "write $ref",
    "$recursiveRef": "write $ref",
    # These change what a reference beside them leads to, or how it is judged.
    "$anchor": "refer to $defs by name",
    "$dynamicAnchor": "refer to $defs by name",
    "$id": "refer to $defs by name",
    "$schema": "it stands outermost alone",
}
_REFERENCE = re.compile(r"#(?:/(?:\$defs|definitions)/[^/~%]+)?")
"""What is looked at as a schema: no reference leads into data."""
_GROUP_REPEATED = re.compile(r"\)[*+?{]")
_REFERENCE_BACK = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")
_FLAGS = re.compile(r"\(\?[aiLmsux#-]")
"""Flags, under which a pattern is not what it looks like; and comments."""
_GROUP = re.compile(r"\(\?")
_CHOICE = re.compile(r"[*+?|]|\{\d*,\d*\}")
_SINGLE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escaped character, or a class of characters."""


def bounded(schema: Any, *, path: str) -> Any:
    """Return a caller's schema, in which no text longer than `LONGEST_MATCHED` is
    matched with a pattern. Raises `InvalidValue` naming the path of what is refused.
    """
    # A text would be read as the name of a type, which only an author may write.
    if not isinstance(schema, dict):
        raise InvalidValue(f"{path}: a schema is a JSON object", path=path)
    inner = dict(schema)
    dialect = inner.pop("$schema", DIALECT)
    if dialect != DIALECT:
        at = f"{path}.$schema"
        raise InvalidValue(f"{at}: it is {DIALECT}", path=at)
    return _bounded(inner, path, 0)


def _bounded(schema: Any, path: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidValue(
            f"{path}: the schema is nested more than {DEEPEST} deep", path=path
        )
    if isinstance(schema, list):
        return [_bounded(member, path, depth + 1) for member in schema]
    if not isinstance(schema, dict):
        return schema
    inner: dict[str, Any] = {}
    for keyword, value in schema.items():
        inner[keyword] = _of_keyword(str(keyword), value, path, depth)
    return _with_longest(inner)


def _of_keyword(keyword: str, value: Any, path: str, depth: int) -> Any:
    at = f"{path}.{keyword}"
    _require_allowed(keyword, value, at)
    if keyword in _DATA:
        return value
    if keyword in _NAMED and isinstance(value, dict):
        return {name: _bounded(one, at, depth + 1) for name, one in value.items()}
    return _bounded(value, at, depth + 1)


def _require_allowed(keyword: str, value: Any, at: str) -> None:
    """Raise `InvalidValue` for a keyword that could cost without bounds."""
    if keyword in _REFUSED:
        raise InvalidValue(f"{at}: {_REFUSED[keyword]}", path=at)
    if keyword == "$ref" and not _is_own_reference(value):
        raise InvalidValue(f"{at}: refer to # or #/$defs/<name>", path=at)
    if keyword == "format" and value == "regex":
        raise InvalidValue(f"{at}: patterns in values are not judged here", path=at)
    if keyword == "pattern":
        _require_bounded_pattern(value, at)


def _is_own_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _require_bounded_pattern(pattern: Any, path: str) -> None:
    """Raise `InvalidValue` for a pattern whose cost could grow without bounds."""
    if pattern == PATTERN_OF_DECIMAL:
        return
    fault = ""
    if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
        fault = f"a pattern is a text of at most {LONGEST_PATTERN} characters"
    elif _GROUP_REPEATED.search(_SINGLE.sub("x", pattern)):
        fault = "a pattern repeats single characters and classes, no groups"
    elif _REFERENCE_BACK.search(pattern):
        fault = "a pattern refers back to nothing"
    elif _FLAGS.search(_SINGLE.sub("x", pattern)):
        fault = "a pattern has no flags"
    elif _choices(pattern) > _most_choices(pattern):
        fault = (
            f"it has more than {_most_choices(pattern)} repeats, options and "
            "alternatives"
        )
    if fault:
        raise InvalidValue(f"{path}: {fault}", path=path)


def _choices(pattern: str) -> int:
    # A sign in a class, or after a backslash, is no choice.
    plain = _SINGLE.sub("x", pattern)
    return len(_CHOICE.findall(_GROUP.sub("(", plain)))


def _most_choices(pattern: str) -> int:
    return MOST_CHOICES_ANCHORED if pattern.startswith("^") else MOST_CHOICES


def _with_longest(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose pattern is for short texts alone."""
    if "pattern" not in schema:
        return schema
    most = LONGEST_MATCHED
    if schema["pattern"] == PATTERN_OF_DECIMAL:
        most = LONGEST_DECIMAL
    longest = schema.get("maxLength", most)
    if not isinstance(longest, int) or longest > most:
        longest = most
    return {**schema, "maxLength": longest}
