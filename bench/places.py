"""The databases of the bench: SQLite files and one PostgreSQL, both as durable as they
can be, started for the bench.

A `Place` is one fresh database. Workloads get one each, so that no workload pays for
the rows of another.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator.devtools.postgres import Postgres

ROOT = Path(__file__).parent.parent
DURABLE = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-20000;"


@dataclass(slots=True)
class Place:
    """One database: its `url` as DATABASE_URL, and where `server` finds it."""

    server: "Server"
    name: str
    url: str
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def vendor(self) -> str:
        return self.server.vendor

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a process that works on it, in production mode:
        Django's debug mode would keep every statement.
        """
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "DATABASE_URL": self.url,
            "COUNTERSIGN_DATA_DIR": str(self.folder),
            "COUNTERSIGN_SECRET_KEY": "only-for-the-bench-which-keeps-nothing",
            "COUNTERSIGN_ALLOWED_HOSTS": "localhost",
            "COUNTERSIGN_HTTPS": "false",
            "COUNTERSIGN_LOG_LEVEL": "ERROR",
            "PYTHONPATH": str(ROOT),
            **self.variables,
            **variables,
        }

    def connect(self) -> Any:
        """Return a bare connection of the driver, each statement a transaction."""
        return self.server.connect(self.name)


class Server(ABC):
    """One kind of database, with a template that holds our migrated tables."""

    vendor: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self._migrated = False

    @abstractmethod
    def start(self) -> None:
        """Make it ready."""

    @abstractmethod
    def stop(self) -> None:
        """Leave nothing behind."""

    @abstractmethod
    def connect(self, name: str) -> Any:
        """See `Place.connect`."""

    @abstractmethod
    def _make(self, name: str, *, template: str | None, delay_ms: float) -> str:
        """Create the database and give its URL."""

    @abstractmethod
    def _ready(self, template: Place) -> None:
        """Make the migrated template fit to be copied."""

    def fresh(self, what: str, *, ours: bool = True, delay_ms: float = 0.0) -> Place:
        """Return a new database: with our tables, or empty. `delay_ms` is added to
        every commit (PostgreSQL only).
        """
        self._count += 1
        name = f"{what}_{self._count}".lower().replace("-", "_")
        if ours and not self._migrated:
            self._migrate()
        folder = self.folder / name
        folder.mkdir()
        return Place(
            self,
            name,
            self._make(name, template="ours" if ours else None, delay_ms=delay_ms),
            folder,
        )

    def _migrate(self) -> None:
        url = self._make("ours", template=None, delay_ms=0.0)
        place = Place(self, "ours", url, self.folder)
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v0"],
            cwd=ROOT,
            env=place.environment(),
            check=True,
        )
        self._ready(place)
        self._migrated = True


class Sqlite(Server):
    """Files in WAL mode with synchronous=FULL."""

    vendor = "sqlite"

    def start(self) -> None:
        """Do nothing: there is no server."""

    def stop(self) -> None:
        """The folder goes with the bench."""

    def _ready(self, template: Place) -> None:
        with closing(template.connect()) as link:
            link.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.sqlite3"

    def connect(self, name: str) -> sqlite3.Connection:
        link = sqlite3.connect(
            self.path(name), isolation_level=None, timeout=30, check_same_thread=False
        )
        link.executescript(DURABLE)
        return link

    def _make(self, name: str, *, template: str | None, delay_ms: float) -> str:
        if template:
            shutil.copyfile(self.path(template), self.path(name))
        return f"sqlite:///{self.path(name)}"


class Postgresql(Server):
    """A server with fsync and synchronous_commit on, on a Unix socket."""

    vendor = "postgresql"

    def start(self) -> None:
        self._postgres = Postgres(self.folder / "pg", keep=True)
        self._postgres.start()

    def stop(self) -> None:
        self._postgres.stop()

    def _ready(self, template: Place) -> None:
        """A template is copied as it is."""

    @property
    def socket(self) -> Path:
        return self._postgres.folder

    def through(self, place: Place, folder: Path) -> Place:
        """Return the same database by way of the socket in `folder`."""
        return replace(
            place, url=place.url.replace(quote(str(self.socket)), quote(str(folder)))
        )

    def connect(self, name: str) -> Any:
        import psycopg

        return psycopg.connect(
            f"user=postgres dbname={name} host={self.socket}", autocommit=True
        )

    def _make(self, name: str, *, template: str | None, delay_ms: float) -> str:
        with closing(self.connect("postgres")) as link:
            link.execute(
                f"CREATE DATABASE {name}"
                + (f" TEMPLATE {template}" if template else "")
            )
            if delay_ms:
                # The server itself sleeps before it flushes a commit; with
                # commit_siblings at 0 it does so for a lone session too. So every
                # commit of the limit, the peers and us waits the same, and nothing else
                # does: no proxy that would cost round trips as well. `bench.limit`
                # proves that it works.
                link.execute(
                    f"ALTER DATABASE {name} SET commit_delay = {int(delay_ms * 1000)}"
                )
                link.execute(f"ALTER DATABASE {name} SET commit_siblings = 0")
        return self._postgres.url.replace("/countersign?", f"/{name}?")


SERVERS: dict[str, type[Server]] = {"sqlite": Sqlite, "postgresql": Postgresql}
