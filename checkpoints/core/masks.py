"""Masking of secrets in every form in which texts contain them. Pure.

The forms of a secret are: as it is, as Python and JSON quote it, as an address encodes
it, and, if it is too long to occur by chance, in base64 (wherever it begins in the
encoded text) and in hexadecimal.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "•••"
LEAST_ENCODED = 8
"""Characters that a secret, and the part of it that base64 always has, must have."""
DEEPEST = 20
"""The most levels that are entered; values below are masked in their `repr`, like
objects.
"""

Pattern = re.Pattern[str]


def mask_json(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return the JSON value with every secret masked in its strings and keys; as it is
    where there are none.
    """
    pattern = _pattern_of(secrets)
    if pattern is None:
        return value
    return _mask_json(value, pattern)


def mask_any(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return any value with every secret masked, for a log.

    Containers are walked. An object whose `repr` holds a secret becomes that text,
    masked; others stay unchanged. A number that is a secret is masked too.
    """
    pattern = _pattern_of(secrets)
    if pattern is None:
        return value
    return _mask_any(value, pattern, DEEPEST)


def _pattern_of(secrets: Mapping[str, str]) -> Pattern | None:
    """Return the pattern of all forms of the secrets; None if there are none."""
    words = [word for word in secrets.values() if word]
    if not words:
        return None
    return _pattern_of_words(tuple(sorted(words)))


def _mask_json(value: Any, pattern: Pattern) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, list):
        return [_mask_json(item, pattern) for item in value]
    if isinstance(value, dict):
        masked = {}
        for key, item in value.items():
            masked[_mask_json(key, pattern)] = _mask_json(item, pattern)
        return masked
    return value


def _mask_any(
    value: Any,
    pattern: Pattern,
    depth: int,
) -> Any:
    """Return a value masked, with as many further levels of containers as `depth`."""
    if value is None or isinstance(value, bool):
        return value
    # A subclass of str may show another text, so it is masked like an object.
    if type(value) is str:
        return pattern.sub(MASK, value)
    if isinstance(value, int | float):
        return _mask_number(value, pattern)
    if depth == 0:
        return _mask_object(value, pattern)
    if isinstance(value, dict):
        return _mask_dict(value, pattern, depth - 1)
    if type(value) in (list, tuple, set, frozenset):
        return _mask_items(value, pattern, depth - 1)
    return _mask_object(value, pattern)


def _mask_number(number: float, pattern: Pattern) -> Any:
    # Only as a whole: digits of a secret occur in other numbers by chance.
    if pattern.fullmatch(str(number)):
        return MASK
    return number


def _mask_dict(
    values: dict[Any, Any],
    pattern: Pattern,
    depth: int,
) -> dict[Any, Any]:
    masked = {}
    for key, item in values.items():
        masked[_mask_key(key, pattern, depth)] = _mask_any(item, pattern, depth)
    return masked


def _mask_key(key: Any, pattern: Pattern, depth: int) -> Any:
    masked = _mask_any(key, pattern, depth)
    try:
        hash(masked)
    except TypeError:
        # A frozenset comes back as a list, which can't be a key.
        return repr(masked)
    return masked


def _mask_items(
    values: Iterable[Any],
    pattern: Pattern,
    depth: int,
) -> list[Any] | tuple[Any, ...]:
    items = [_mask_any(item, pattern, depth) for item in values]
    if isinstance(values, tuple):
        return tuple(items)
    # Masked items of a set need not be hashable.
    return items


def _mask_object(value: Any, pattern: Pattern) -> Any:
    """Return the object, or its masked `repr` where its `repr` or its `str` holds a
    secret: logs show either.
    """
    try:
        as_repr = repr(value)
        as_str = str(value)
    except Exception as error:
        # No log could show it either; and the message of the error may hold the secret.
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"
    masked_repr = pattern.sub(MASK, as_repr)
    if masked_repr == as_repr and pattern.sub(MASK, as_str) == as_str:
        return value
    return masked_repr


@lru_cache(maxsize=8)
def _pattern_of_words(words: tuple[str, ...]) -> Pattern:
    forms: set[str] = set()
    for word in words:
        forms.update(_forms(word))
    # The longest first: a secret that begins with another one leaks no tail.
    longest_first = sorted(forms, key=_by_length_and_text)
    return re.compile("|".join(map(re.escape, longest_first)))


def _by_length_and_text(form: str) -> tuple[int, str]:
    return (-len(form), form)


def _forms(word: str) -> Iterator[str]:
    """Yield the texts in which a secret may occur."""
    content = word.encode("utf-8", "replace")
    yield word
    yield repr(word)[1:-1]
    yield repr(content)[2:-1]
    yield json.dumps(word)[1:-1]
    yield json.dumps(word, ensure_ascii=False)[1:-1]

    # In addresses; the hexadecimal digits of an escape may be in either case.
    for encoded in (quote(content), quote(content, safe=""), quote_plus(content)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", _lower, encoded)

    if len(word) >= LEAST_ENCODED:
        yield content.hex()
        yield content.hex().upper()
        yield from _base64_forms(content)


def _lower(escape: re.Match[str]) -> str:
    return escape[0].lower()


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield the part of the encoded secret that does not depend on the bytes before and
    after it, for each of the three offsets at which it may begin.
    """
    for bytes_before in range(3):
        encoded = base64.b64encode(bytes(bytes_before) + content).decode()
        # A character encodes 6 bits. The first one that has only bits of the secret is
        # found by rounding up, the end of the last one by rounding down.
        first = -(-8 * bytes_before // 6)
        end = 8 * (bytes_before + len(content)) // 6
        independent = encoded[first:end]
        if len(independent) >= LEAST_ENCODED:
            yield independent
            # The alphabet that is safe in addresses.
            yield independent.replace("+", "-").replace("/", "_")
