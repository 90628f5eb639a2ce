"""Tombstones, which replace erased content. Pure; docs/erasure.md documents the form for
everyone who reads rows.

A value is replaced by `{"erased": true, "record": "<id of the erasure record>"}`; a text
that must stay a text, such as a title or the message of an error, by `TEXT`.
"""

from typing import Any

TEXT = "[erased]"


def tombstone(record: Any) -> dict[str, Any]:
    """Return the replacement for a value that was erased under this record."""
    return {"erased": True, "record": str(record)}


def is_tombstone(value: Any) -> bool:
    """Return whether this replaces an erased value."""
    # By identity, since to Python 1 is equal to True.
    return (
        isinstance(value, dict)
        and value.keys() == {"erased", "record"}
        and value["erased"] is True
    )


def holds_tombstone(value: Any) -> bool:
    """Return whether this value, or something in it, was erased."""
    if isinstance(value, list):
        return any(map(holds_tombstone, value))
    if isinstance(value, dict):
        return is_tombstone(value) or any(map(holds_tombstone, value.values()))
    return False


def agrees(logged: Any, stored: Any) -> bool:
    """Return whether a row agrees with a line of the log: it has the recorded value, or
    nothing if the recorded value was erased.
    """
    return logged == stored or (is_tombstone(logged) and not stored)
