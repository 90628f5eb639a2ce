"""Masking of secrets in everything that nodes produce, so that none reaches a row, a
log entry or an error.

`checkpoints.core.masks` finds them; the process's log (`orchestrator.logging`) uses it
too.
"""

from collections.abc import Mapping
from typing import Any

from checkpoints.conf import conf
from checkpoints.core.masks import MASK, mask_json

__all__ = [
    "MASK",
    "hide_secrets",
    "mask_known_secrets",
    "mask_secrets",
    "writable",
]


def writable(text: str) -> str:
    """Return the text with a question mark for each character that has no canonical
    form.
    """
    # Lone surrogates have no UTF-8 form, and PostgreSQL stores no zero bytes.
    encodable = text.encode("utf-8", "replace").decode()
    return encodable.replace("\x00", "?")


def mask_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return the JSON value with every secret's value masked in its strings and keys.
    Without secrets the value itself is returned.
    """
    return mask_json(value, secrets)


def mask_known_secrets(value: Any) -> Any:
    """Return the JSON value with every secret of the settings masked."""
    return mask_secrets(value, conf().secrets)


def hide_secrets(text: str) -> str:
    """Return the text with every secret of the settings masked."""
    return str(mask_known_secrets(text))
