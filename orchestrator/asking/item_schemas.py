"""The schemas that callers send with items. An author's schema is code that was read;
a caller's is not, so what judging it may cost is bounded. Pure.
"""

import re
from typing import Any

from orchestrator.engine.errors import InvalidValue

LONGEST_PATTERN = 500
MOST_REPEATS = 2
MOST_REPEATS_ANCHORED = 4
"""The most open repeats of a pattern that begins with ^: it is tried at one place. The
pattern that pydantic writes for a Decimal has so many.
"""
LONGEST_MATCHED = 100
"""The most characters of a text that a pattern is tried on: with so few, each pattern
that is let through costs milliseconds.
"""
DEEPEST = 32
_DATA = frozenset({"const", "default", "enum", "examples"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "properties"})
_GROUP_REPEATED = re.compile(r"\)[*+?{]")
_REFERENCE_BACK = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")
_OPEN_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}")
_SINGLE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escaped character, or a class of characters."""


def bounded(schema: Any, *, path: str) -> Any:
    """Return a caller's schema, in which no text longer than `LONGEST_MATCHED` is
    matched with a pattern. Raises `InvalidValue` naming the path of what is refused.
    """
    # A text would be read as the name of a type, which only an author may write.
    if not isinstance(schema, dict):
        raise InvalidValue(f"{path}: a schema is a JSON object", path=path)
    return _bounded(schema, path, 0)


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
    if keyword == "patternProperties":
        raise InvalidValue(f"{at}: patterns of names are not judged here", path=at)
    if keyword in ("$dynamicRef", "$recursiveRef"):
        raise InvalidValue(f"{at}: write $ref", path=at)
    if keyword == "pattern":
        _require_bounded_pattern(value, at)
    if keyword in _DATA:
        return value
    if keyword in _NAMED and isinstance(value, dict):
        return {name: _bounded(one, at, depth + 1) for name, one in value.items()}
    return _bounded(value, at, depth + 1)


def _require_bounded_pattern(pattern: Any, path: str) -> None:
    """Raise `InvalidValue` for a pattern whose cost could grow without bounds."""
    fault = ""
    if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
        fault = f"a pattern is a text of at most {LONGEST_PATTERN} characters"
    elif _GROUP_REPEATED.search(_SINGLE.sub("x", pattern)):
        fault = "a pattern repeats single characters and classes, no groups"
    elif _REFERENCE_BACK.search(pattern):
        fault = "a pattern refers back to nothing"
    elif _open_repeats(pattern) > _most_repeats(pattern):
        fault = f"it has more than {_most_repeats(pattern)} open repeats"
    if fault:
        raise InvalidValue(f"{path}: {fault}", path=path)


def _open_repeats(pattern: str) -> int:
    # What stands in a class, or behind a backslash, repeats nothing.
    return len(_OPEN_REPEAT.findall(_SINGLE.sub("x", pattern)))


def _most_repeats(pattern: str) -> int:
    return MOST_REPEATS_ANCHORED if pattern.startswith("^") else MOST_REPEATS


def _with_longest(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose pattern is for short texts alone."""
    if "pattern" not in schema:
        return schema
    longest = schema.get("maxLength", LONGEST_MATCHED)
    if not isinstance(longest, int) or longest > LONGEST_MATCHED:
        longest = LONGEST_MATCHED
    return {**schema, "maxLength": longest}
