"""A whole installation that can be lost: commands in processes of their own, a worker,
and a database of either kind, with the steps of docs/backup.md to copy it and put it
back.
"""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from orchestrator.devtools.postgres import NAME, Postgres, binaries
from tests.house.commands import PRODUCTION
from tests.support.clusters import Command
from tests.support.processes import ROOT, environment, until

KEY = PRODUCTION["COUNTERSIGN_SECRET_KEY"]
"""Kept at another place than the copies, and the same afterwards."""


class DrillSite:
    """An installation on SQLite, in a folder of its own."""

    def __init__(self, heads: Path) -> None:
        """`heads` is the file for the heads of the audit log, which outlives it."""
        self.folder = Path(tempfile.mkdtemp(prefix="countersign-"))
        # A server of PostgreSQL runs as another user where this is root.
        self.folder.chmod(0o755)
        self.heads = heads
        self.worker: Command | None = None

    @property
    def url(self) -> str:
        """Return its DATABASE_URL."""
        return f"sqlite:///{self.folder / 'countersign.sqlite3'}"

    def variables(self) -> dict[str, str]:
        """Return the environment of its processes."""
        return {
            "DATABASE_URL": self.url,
            "COUNTERSIGN_DATA_DIR": str(self.folder),
            "COUNTERSIGN_SECRET_KEY": KEY,
            "COUNTERSIGN_AUDIT_HEAD_FILE": str(self.heads),
        }

    def manage(self, *words: str) -> str:
        """Run a command of manage.py, which must succeed. Returns what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment(**self.variables()),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def python(self, code: str) -> None:
        """Run code of the project."""
        self.manage("shell", "--verbosity=0", "--command", code)

    def start_worker(self) -> None:
        """Start a worker."""
        log = self.folder / "worker.log"
        self.worker = Command("worker", log=log, **self.variables())

    def statuses(self) -> dict[str, str]:
        """Return the status of each run by its key."""
        return dict(self.ask("SELECT key, status FROM checkpoints_run"))

    def wait_for(self, **statuses: str) -> None:
        """Wait until these runs have these statuses."""
        until(
            lambda: statuses.items() <= self.statuses().items(),
            seconds=90,
            what=f"{statuses}, not {self.statuses()}",
        )

    def lose(self) -> None:
        """Kill everything at once, and remove what was there."""
        if self.worker is not None:
            self.worker.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, statement: str) -> list[Any]:
        """Return the rows of a query, past the project."""
        with closing(sqlite3.connect(self.folder / "countersign.sqlite3")) as link:
            return link.execute(statement).fetchall()

    def back_up(self, file: Path) -> None:
        """Copy the database while it is in use."""
        self.manage("backup", str(file))

    def put_back(self, file: Path) -> None:
        """Put a copy in the place of the database."""
        shutil.copy(file, self.folder / "countersign.sqlite3")


class DrillOnServer(DrillSite):
    """An installation on a PostgreSQL of its own."""

    def __init__(self, heads: Path) -> None:
        super().__init__(heads)
        # It must not lose what it has acknowledged.
        self.server = Postgres(self.folder / "pg", keep=True)
        self.server.start()

    @property
    def url(self) -> str:
        return self.server.url

    def lose(self) -> None:
        if self.worker is not None:
            self.worker.kill_all()
        self.server.keep = False
        self.server.stop()
        super().lose()

    def ask(self, statement: str) -> list[Any]:
        where = f"user=postgres dbname={NAME} host={self.server.folder}"
        with closing(psycopg.connect(where)) as link:
            return link.execute(statement).fetchall()

    def back_up(self, file: Path) -> None:
        self._run("pg_dump", "--format=custom", f"--file={file}", NAME)

    def put_back(self, file: Path) -> None:
        self._run("pg_restore", "--exit-on-error", f"--dbname={NAME}", str(file))

    def _run(self, program: str, *words: str) -> None:
        where = [f"--host={self.server.folder}", "--username=postgres"]
        done = subprocess.run(
            [binaries() / program, *where, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
