"""Values as payload columns keep them: canonical JSON, packed. The one place where rows and values meet."""

from typing import Any

import orjson
import zstandard
from django.db.models import Model

from checkpoints.core import codec
from checkpoints.sealing import sealed_rows
from orchestrator.engine import canonical
from orchestrator.engine.errors import (
    UNREADABLE,
    CountersignError,
    PayloadLost,
    PayloadsUnavailable,
    TamperedRow,
    UnknownBackend,
)


def pack_json(value: Any) -> bytes:
    """What a payload column keeps for a JSON value. Raises `InvalidValue` where the value has no canonical form."""
    return codec.pack(canonical.dumps(value))


def unpack_json(kept: bytes | memoryview) -> Any:
    """The JSON value of a payload column; None for an empty column. Raises `codec.UnknownFormat`."""
    data = bytes(kept)
    return canonical.loads(codec.unpack(data)) if data else None


def read_value(row: Model, column: str) -> Any:
    """The JSON value of a row's payload column, decrypted where it is encrypted; None for an empty column. Raises
    `TamperedRow` and `WrongKey`, naming column and row.
    """
    data = read_bytes(row, column)
    try:
        return canonical.loads(data) if data else None
    except orjson.JSONDecodeError as error:
        raise _unreadable(row, column, error) from error


def read_bytes(row: Model, column: str, stored: bytes | None = None) -> bytes:
    """The canonical bytes of a row's payload column, or of `stored` that belongs there; empty for an empty one. Raises
    `TamperedRow` and `WrongKey`, naming column and row.
    """
    data = sealed_rows.decrypted(row, column, stored)
    try:
        return codec.unpack(data) if data else b""
    except (codec.UnknownFormat, zstandard.ZstdError) as error:
        raise _unreadable(row, column, error) from error


def _unreadable(row: Model, column: str, error: Exception) -> TamperedRow:
    what = sealed_rows.name_of(row)
    return TamperedRow(f"{column} of {what} cannot be read: {error}", row=what, column=column)


def read_or_reason(row: Model, column: str) -> Any:
    """`read_value` for lists: a sentence where the value cannot be opened, since one row must not hide the others."""
    try:
        return read_value(row, column)
    except UNREADABLE as error:
        return unreadable_reason(error)


def unreadable_reason(error: CountersignError) -> str:
    """In the words of pages why a value cannot be opened."""
    if isinstance(error, PayloadLost | PayloadsUnavailable | UnknownBackend):
        return f"cannot be opened: {error.message}"
    if isinstance(error, TamperedRow):
        return "cannot be opened: it is not what was written"
    return f"cannot be opened: key {error.facts.get('key', '')!r} is not configured"
