"""Everything that a database holds, as bytes: what somebody gets who takes the disk or
a backup away.
"""

import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection

from checkpoints.core import codec

BASE64 = re.compile(rb"[A-Za-z0-9+/]{4,}={0,2}")


def of_database() -> bytes:
    """The file and its journal on SQLite; every row of every table on PostgreSQL."""
    return b"".join(_tables() if connection.vendor == "postgresql" else _files())


def _files() -> Iterator[bytes]:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    name = Path(str(connection.settings_dict["NAME"]))
    yield from (
        _read_elsewhere(path)
        for path in (name, name.with_name(f"{name.name}-wal"))
        if path.exists()
    )


def _read_elsewhere(path: Path) -> bytes:
    """Read a file in a process of its own. A process that closes a file of SQLite gives
    up all its locks on it, also those of its open connections: then another process
    that ends takes itself for the last, and removes the journal that this one reads.
    """
    return subprocess.run(["cat", path], check=True, capture_output=True).stdout


def _tables() -> Iterator[bytes]:
    # Binary: bytes stand as they are, not in hexadecimal.
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            with cursor.copy(
                f"COPY {connection.ops.quote_name(table)} TO STDOUT (FORMAT BINARY)"
            ) as rows:
                yield b"".join(bytes(part) for part in rows)


def payloads() -> Iterator[tuple[str, str, bytes]]:
    """Table, column and bytes of everything that is kept in a payload column, of all
    rows.
    """
    for model in apps.get_models():
        names: Any = getattr(model, "PAYLOADS", ())
        names = ("change", "snapshot") if model.__name__ == "Checkpoint" else names
        for row in model._base_manager.values(*names) if names else ():
            yield from (
                (model.__name__, name, bytes(row[name] or b"")) for name in names
            )


def unpacked_payloads() -> bytes:
    """Return the contents of everything that is kept in a payload column."""
    return b"".join(codec.unpack(data) for _, _, data in payloads() if data)


def holds(word: str, content: bytes) -> bool:
    """Return whether a word stands in these bytes, or in what a text in them says in
    base64.
    """
    mark = word.encode()
    return mark in content or any(mark in decoded for decoded in _decoded(content))


def _decoded(content: bytes) -> Iterator[bytes]:
    for text in BASE64.findall(content):
        # Other letters may stand before a text in base64: it begins at one of four places.
        for start in range(4):
            length = (len(text) - start) // 4 * 4
            yield b64decode(text[start : start + length])
