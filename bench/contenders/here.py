"""What the processes of contenders share: where their database is, and how its bytes
and their steps are measured.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPEATED = 15
URL = os.environ["DATABASE_URL"]


def vendor() -> str:
    """ "sqlite" or "postgresql"."""
    return "sqlite" if URL.startswith("sqlite") else "postgresql"


def sqlite_path() -> Path:
    return Path(URL.removeprefix("sqlite:///"))


def dsn() -> str:
    """Return the database's address for libpq."""
    parts = urlsplit(URL)
    return f"user={parts.username} dbname={parts.path[1:]} host={parse_qs(parts.query)['host'][0]}"


def size() -> int:
    """Bytes of all tables with their indexes."""
    if vendor() == "sqlite":
        import sqlite3

        with closing(sqlite3.connect(sqlite_path())) as link:
            link.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return sqlite_path().stat().st_size
    import psycopg

    query = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')"
    )
    with closing(psycopg.connect(dsn(), autocommit=True)) as link:
        row: Any = link.execute(query).fetchone()
        return int(row[0])


class Resumed:
    """What a process sees that goes on after a dead one: its first new step, and the
    one after, when it dies too.
    """

    def __init__(self, after: int, die: Callable[[dict[str, Any]], None]) -> None:
        self._after = after
        self._die = die
        self._begun = time.perf_counter()
        self._at: list[float] = []

    def step(self, number: int) -> None:
        self._at.append(1000 * (time.perf_counter() - self._begun))
        assert number == self._after + len(self._at), (
            f"step {number} after {self._after}: lost or worked on twice"
        )
        if len(self._at) == 2:
            self._die({"to_node_ms": self._at[0], "to_commit_ms": self._at[1]})


def milliseconds(act: Callable[[], Any]) -> float:
    """Return the median time of some calls."""
    took = []
    for _ in range(REPEATED):
        begun = time.perf_counter()
        act()
        took.append(1000 * (time.perf_counter() - begun))
    return median(took)


class Stamps:
    """When each step began, and the bytes on disk as the step after a mark begins."""

    def __init__(self, marks: list[int]) -> None:
        self._marks = set(marks)
        self._at: list[float] = []
        self._bytes = {"0": size()}

    def step(self, number: int) -> None:
        if number - 1 in self._marks:
            self._bytes[str(number - 1)] = size()
        assert number == len(self._at) + 1, "a step was lost or worked on twice"
        self._at.append(time.perf_counter())

    def facts(self, steps: int) -> dict[str, Any]:
        """Return the facts after the last step: its seconds from the second step on,
        and bytes by mark.
        """
        assert len(self._at) == steps, "a step was lost or worked on twice"
        self._bytes[str(steps)] = size()
        return {
            "steps": [
                after - before
                for before, after in zip(self._at, self._at[1:], strict=False)
            ],
            "bytes": self._bytes,
        }
