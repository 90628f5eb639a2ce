"""Secrets never reach a row, a line or an error: whatever a node says passes through here first."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from checkpoints.conf import conf

MASK = "•••"


def writable(text: str) -> str:
    """Text that has a canonical form: what cannot be written is shown as a question mark."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


def mask_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """The JSON value with every secret's value masked in its strings and keys. As given where there are none."""
    words = tuple(sorted((word for word in secrets.values() if word), key=len, reverse=True))
    return _masked(value, words) if words else value


def hide_secrets(text: str) -> str:
    """The text with every secret of the settings masked."""
    return str(mask_secrets(text, conf().secrets))


def _masked(value: Any, words: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _pattern(words).sub(MASK, value)
    if isinstance(value, list):
        return [_masked(one, words) for one in value]
    if isinstance(value, dict):
        return {_masked(key, words): _masked(one, words) for key, one in value.items()}
    return value


@lru_cache(maxsize=8)
def _pattern(words: tuple[str, ...]) -> "re.Pattern[str]":
    return re.compile("|".join(re.escape(word) for word in words))
