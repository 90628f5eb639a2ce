"""Secrets in what is written: masked in every form in which texts carry them. Pure.

A secret is looked for as it is, as Python and JSON quote it, as an address encodes it, and, where it is long enough not
to be met by chance, in base64 (wherever it begins in what was encoded) and in hexadecimal.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "•••"
LEAST_ENCODED = 8
"""Characters that a secret, and what is looked for of it in base64, must have."""
DEEPEST = 20
"""Nested values below this are told as their `repr`, like objects."""


def mask_json(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return the JSON value with every secret masked in its strings and keys; as it is where there are none."""
    pattern = _pattern_of(secrets)
    return _mask_json(value, pattern) if pattern else value


def mask_any(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return any value with every secret masked, for a log.

    Containers are walked. An object whose `repr` holds a secret becomes that text, masked; others stay what they are.
    A number that is a secret is masked too.
    """
    pattern = _pattern_of(secrets)
    return _mask_any(value, pattern, DEEPEST) if pattern else value


def _pattern_of(secrets: Mapping[str, str]) -> "re.Pattern[str] | None":
    words = tuple(sorted(word for word in secrets.values() if word))
    return _pattern(words) if words else None


def _mask_json(value: Any, pattern: "re.Pattern[str]") -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, list):
        return [_mask_json(item, pattern) for item in value]
    if isinstance(value, dict):
        return {_mask_json(key, pattern): _mask_json(item, pattern) for key, item in value.items()}
    return value


def _mask_any(value: Any, pattern: "re.Pattern[str]", depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return pattern.sub(MASK, value)
    if isinstance(value, int | float):
        return MASK if pattern.fullmatch(str(value)) else value
    if depth:
        if isinstance(value, dict):
            inner = depth - 1
            return {_mask_any(key, pattern, inner): _mask_any(item, pattern, inner) for key, item in value.items()}
        if type(value) in (list, tuple, set, frozenset):
            items = [_mask_any(item, pattern, depth - 1) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
    return _mask_object(value, pattern)


def _mask_object(value: Any, pattern: "re.Pattern[str]") -> Any:
    """Return the object, or its masked text where one of its texts holds a secret: logs show `repr` or `str`."""
    try:
        texts = (repr(value), str(value))
    except Exception as error:
        # It could not be written either; and what it raises may name the secret.
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"
    masked = pattern.sub(MASK, texts[0])
    return value if (masked, pattern.sub(MASK, texts[1])) == texts else masked


@lru_cache(maxsize=8)
def _pattern(words: tuple[str, ...]) -> "re.Pattern[str]":
    forms = {form for word in words for form in _forms(word)}
    # The longest first: a secret that begins with another leaks no tail.
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))))


def _forms(word: str) -> Iterator[str]:
    """Give the texts in which the word may stand."""
    yield word
    yield repr(word)[1:-1]
    yield repr(word.encode("utf-8", "replace"))[2:-1]
    yield json.dumps(word)[1:-1]
    yield json.dumps(word, ensure_ascii=False)[1:-1]
    content = word.encode("utf-8", "replace")
    for encoded in (quote(content), quote(content, safe=""), quote_plus(content)):
        yield encoded
        yield _lower_escapes(encoded)
    if len(word) >= LEAST_ENCODED:
        yield content.hex()
        yield content.hex().upper()
        yield from _base64_forms(content)


def _lower_escapes(encoded: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), encoded)


def _base64_forms(content: bytes) -> Iterator[str]:
    """Give what of the encoded word does not depend on what stands before and behind it, for each of three starts."""
    for before in range(3):
        bits = 8 * (before + len(content))
        first = -(-8 * before // 6)
        whole = base64.b64encode(bytes(before) + content).decode()[first : bits // 6]
        if len(whole) >= LEAST_ENCODED:
            yield whole
            yield whole.translate(str.maketrans("+/", "-_"))
