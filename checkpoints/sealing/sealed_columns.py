"""Owns values as payload columns store them: canonical JSON, packed. The one place
where rows and values meet.
"""

from typing import Any

import orjson
import zstandard
from django.db.models import Model

from checkpoints.core import codec
from checkpoints.sealing import sealed_rows
from orchestrator.engine.errors import (
    UNREADABLE,
    CountersignError,
    PayloadLost,
    PayloadsUnavailable,
    TamperedRow,
    UnknownBackend,
)
from orchestrator.engine.values import canonical


def pack_json(value: Any) -> bytes:
    """Return the bytes that a payload column stores for a JSON value. Raises
    `InvalidValue` if the value has no canonical form.
    """
    return codec.pack(canonical.dumps(value))


def unpack_json(stored: bytes | memoryview) -> Any:
    """Return the JSON value of a payload column; None for an empty column. Raises
    `codec.UnknownFormat`.
    """
    data = bytes(stored)
    return canonical.loads(codec.unpack(data)) if data else None


def read_value(row: Model, column: str) -> Any:
    """Return the JSON value of a row's payload column, decrypted; None for an empty
    column. Raises `TamperedRow` and `WrongKey`, naming column and row.
    """
    data = read_bytes(row, column)
    try:
        return canonical.loads(data) if data else None
    except orjson.JSONDecodeError as error:
        raise _unreadable(row, column, error) from error


def read_bytes(row: Model, column: str, stored: bytes | None = None) -> bytes:
    """Return the canonical bytes of a row's payload column, or of `stored`, which
    belongs there; empty for an empty one. Raises `TamperedRow` and `WrongKey`, naming
    column and row.
    """
    data = sealed_rows.decrypted(row, column, stored)
    try:
        return codec.unpack(data) if data else b""
    except (codec.UnknownFormat, zstandard.ZstdError) as error:
        raise _unreadable(row, column, error) from error


def _unreadable(row: Model, column: str, error: Exception) -> TamperedRow:
    """Return the refusal of a column that holds no value."""
    row_name = sealed_rows.name_of(row)
    return TamperedRow(
        f"{column} of {row_name} cannot be read: {error}", row=row_name, column=column
    )


def read_or_reason(row: Model, column: str) -> Any:
    """Return `read_value` for lists: a sentence if the value cannot be opened, since
    one row must not hide the others.
    """
    try:
        return read_value(row, column)
    except UNREADABLE as error:
        return unreadable_reason(error)


def unreadable_reason(error: CountersignError) -> str:
    """Return in the words of pages why a value cannot be opened."""
    if isinstance(error, PayloadLost | PayloadsUnavailable | UnknownBackend):
        return f"cannot be opened: {error.message}"
    if isinstance(error, TamperedRow):
        return "cannot be opened: it is not what was written"
    return f"cannot be opened: key {error.facts.get('key', '')!r} is not configured"
