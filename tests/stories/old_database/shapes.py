"""What the rows of a database look like, without what they say: the keys of their JSON,
and the words of columns that hold one of a few. Read from the file itself, so that no
version's code stands between.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import zstandard

WORDS = {
    "status",
    "outcome",
    "source",
    "verdict",
    "reason",
    "type",
    "kind",
    "mode",
    "backend",
    "error_code",
    "theme",
}
"""Columns that hold one of a few words."""
OURS = ("checkpoints_", "approvals_", "orchestrator_")
_MADE_UP = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{64}")


def shapes(path: Path) -> set[str]:
    """Each place in a row of our tables where JSON has a key, and each word:
    `table.column[type].key.key`.
    """
    collected: set[str] = set()
    with closing(sqlite3.connect(path)) as raw:
        raw.row_factory = sqlite3.Row
        tables = [
            name
            for (name,) in raw.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        ]
        for table in (
            name for name in tables if name.startswith(OURS) and "_search" not in name
        ):
            for row in raw.execute(f"SELECT * FROM {table}"):
                collected |= {f"{table}.{place}" for place in _of(row)}
    # A node that took as many milliseconds as at its last visit has changed nothing.
    return {
        place
        for place in collected
        if not place.endswith((".ms.op", ".ms.value", ".keys.ms"))
    }


def _of(row: sqlite3.Row) -> Iterator[str]:
    kind = f"[{row['type']}]" if "type" in row.keys() else ""  # noqa: SIM118 -- to look into a row is to look at values
    for column in row.keys():  # noqa: SIM118
        if column in WORDS and isinstance(row[column], str):
            yield f"{column} = {row[column]}"
        elif column != "seal":
            yield from (
                f"{column}{kind}{place}" for place in _keys(_document(row[column]))
            )


def _document(kept: Any) -> Any:
    """The JSON that a cell holds; None where it holds none that can be read: a text, a
    hash, what is encrypted.
    """
    try:
        if isinstance(kept, bytes):
            kept = (
                zstandard.ZstdDecompressor().decompress(kept[1:])
                if kept[:1] == b"\x02"
                else kept[1:]
            )
        elif not isinstance(kept, str) or kept[:1] not in "{[":
            return None
        return json.loads(kept)
    except (ValueError, zstandard.ZstdError):
        return None


def _keys(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for each in document:
            yield from (f"[]{place}" for place in _keys(each))
    elif isinstance(document, dict):
        for key, value in document.items():
            name = _MADE_UP.sub("*", key)
            yield f".{name}"
            yield from (f".{name}{place}" for place in _keys(value))
