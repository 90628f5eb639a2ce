"""Every SQLite connection of a contender: made as durable as the others', and its
statements counted on request.

`watch` is called before a contender's libraries open their first connection.
"""

import os
import sqlite3
from collections import Counter
from typing import Any

CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "--")
counted: Counter[str] = Counter()
_connect = sqlite3.connect


def watch() -> None:
    """Make all later connections use WAL and synchronous=FULL, and count if BENCH_COUNT
    is set.
    """
    sqlite3.connect = sqlite3.dbapi2.connect = _watched  # type: ignore[assignment]


def kind(sql: str) -> str:
    """Return what a statement counts as: control, reads or writes."""
    text = sql.lstrip().upper()
    if text.startswith(CONTROL):
        return "control"
    return (
        "reads"
        if text.startswith("SELECT") and " FROM " in " ".join(text.split())
        else "writes"
    )


def _watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    link: sqlite3.Connection = _connect(*args, **kwargs)
    link.execute("PRAGMA journal_mode=WAL").close()
    link.execute("PRAGMA synchronous=FULL").close()
    if "BENCH_COUNT" in os.environ:
        link.set_trace_callback(_count)
    return link


def _count(sql: str) -> None:
    counted[kind(sql)] += 1
