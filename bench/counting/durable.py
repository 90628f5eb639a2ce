"""Durable commits, counted exactly and across processes: in the write-ahead log that
they went to.
"""

import re
import sqlite3
import struct
import subprocess
from abc import ABC, abstractmethod
from contextlib import closing

from bench.places import Place, Postgresql, Sqlite
from orchestrator.devtools import postgres


class Commits(ABC):
    """Counts from the moment it is made. `close` it."""

    @abstractmethod
    def count(self) -> int:
        """Return how many transactions that wrote something were committed since then."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the counting holds."""


class SqliteCommits(Commits):
    """A frame of the WAL that carries the size of the database ends a commit."""

    def __init__(self, server: Sqlite, place: Place) -> None:
        self._path = server.path(place.name).with_suffix(".sqlite3-wal")
        self._link: sqlite3.Connection = place.connect()
        self._link.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        self._link.execute(
            "CREATE TABLE IF NOT EXISTS bench_mark (number integer)"
        ).close()
        self._link.execute("INSERT INTO bench_mark VALUES (1)").close()
        # A reader of this snapshot keeps the log from being begun anew, whoever
        # checkpoints.
        self._link.execute("BEGIN").close()
        self._link.execute("SELECT count(*) FROM bench_mark").fetchall()
        self._before = self._frames()

    def count(self) -> int:
        return self._frames() - self._before

    def close(self) -> None:
        self._link.close()

    def _frames(self) -> int:
        commits = 0
        with self._path.open("rb") as log:
            page_size, _, salt = struct.unpack("!8xII8s8x", log.read(32))
            while len(header := log.read(24)) == 24:
                size, same = struct.unpack("!4xI8s8x", header)
                if same != salt:
                    break
                commits += size > 0
                log.seek(page_size, 1)
        return commits


class PostgresqlCommits(Commits):
    """A commit record is written for each transaction that changed something, and
    waited for.
    """

    def __init__(self, server: Postgresql, place: Place) -> None:
        self._server = server
        self._place = place
        self._from = self._position("insert")

    def count(self) -> int:
        until = self._position("flush")
        # What was inserted before it began may be flushed later, or not at all.
        if _bytes_of(until) <= _bytes_of(self._from):
            return 0
        command = [
            postgres.binaries() / "pg_waldump",
            "-p",
            self._server.socket / "data" / "pg_wal",
        ]
        facts = subprocess.run(
            [*map(str, command), "-s", self._from, "-e", until, "-r", "Transaction"],
            capture_output=True,
            text=True,
            check=True,
        )
        return len(re.findall(r"desc: COMMIT", facts.stdout))

    def close(self) -> None:
        """Nothing is held."""

    def _position(self, which: str) -> str:
        with closing(self._place.connect()) as link:
            return str(
                link.execute(f"SELECT pg_current_wal_{which}_lsn()").fetchone()[0]
            )


def _bytes_of(position: str) -> int:
    """Return the place of a position in the write-ahead log, in bytes: "0/E773BD8"."""
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def commits(place: Place) -> Commits:
    """Return a count that begins now."""
    if isinstance(place.server, Sqlite):
        return SqliteCommits(place.server, place)
    assert isinstance(place.server, Postgresql)
    return PostgresqlCommits(place.server, place)
