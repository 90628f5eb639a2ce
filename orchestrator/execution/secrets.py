"""Secrets never reach a row, a line or an error: whatever a node says passes through here first.

How they are found says `checkpoints.core.masks`; the log (`orchestrator.logging`) masks by the same.
"""

from collections.abc import Mapping
from typing import Any

from checkpoints.conf import conf
from checkpoints.core.masks import MASK, mask_json

__all__ = ["MASK", "hide_secrets", "mask_secrets", "writable"]


def writable(text: str) -> str:
    """Text that has a canonical form: what cannot be written is shown as a question mark."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


def mask_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """The JSON value with every secret's value masked in its strings and keys. As given where there are none."""
    return mask_json(value, secrets)


def hide_secrets(text: str) -> str:
    """The text with every secret of the settings masked."""
    return str(mask_secrets(text, conf().secrets))
