"""The database server is stopped and started, and killed and started, under a worker
that has runs in hand.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from orchestrator.devtools.postgres import Postgres
from tests.support.clusters import Command
from tests.support.processes import ROOT, calls, environment, until

pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has no server that could restart"
)


class Installation:
    """A database server of the test's own, and commands that use it."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o755)
        self.server = Postgres(
            folder / "pg", keep=True
        )  # it must not lose what it has acknowledged
        self.server.start()

    def environment(self):
        return {
            "DATABASE_URL": self.server.url,
            "COUNTERSIGN_DATA_DIR": str(self.folder),
        }

    def command(self, *words):
        env = environment(**self.environment())
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def started(self, graph, **fields):
        options = [
            word
            for name, value in fields.items()
            for word in ("--set", f"{name}={value}")
        ]
        return json.loads(self.command("start_run", graph, "--json", *options))["id"]

    def ask(self, statement):
        where = f"user=postgres dbname=countersign host={self.folder / 'pg'}"
        with (
            suppress(psycopg.OperationalError),
            closing(psycopg.connect(where)) as link,
        ):
            return link.execute(statement).fetchall()
        return []

    def statuses(self):
        return dict(self.ask("SELECT id::text, status FROM checkpoints_run"))

    def stop(self, number):
        self.server._server.send_signal(number)
        self.server._server.wait(30)


@pytest.fixture
def installation():
    # Not pytest's folder: the server's user may not enter it, and a socket's path must
    # be short.
    folder = Path(tempfile.mkdtemp(prefix="countersign-"))
    made = Installation(folder)
    try:
        made.command("migrate", "--verbosity", "0")
        yield made
    finally:
        made.server.keep = False
        made.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "killed"]
)
def test_a_restart_of_the_database_loses_no_run_and_repeats_no_effect(
    installation, tmp_path, number
):
    worker = Command(
        "worker", log=tmp_path / "worker.log", **installation.environment()
    )
    try:
        payment = installation.started("effects", folder=tmp_path)
        # An effect that is cut off would wait for a person: this one is made before.
        until(
            lambda: installation.statuses()[payment] == "completed", what="the payment"
        )
        # Long enough to be seen after the command that starts it has ended, on a busy
        # machine too.
        busy = [installation.started("slow", seconds=5, number=n) for n in range(2)]
        until(
            lambda: "running" in [installation.statuses()[one] for one in busy],
            what="a run in hand",
        )
        installation.stop(number)
        time.sleep(3.0)  # longer than the lease
        installation.server.start()
        later = installation.started("loop_every")
        all_runs = {payment, *busy, later}
        until(
            lambda: (
                set(installation.statuses().items())
                == {(run, "completed") for run in all_runs}
            )
        )
        assert worker.main.poll() is None
        assert len(calls(tmp_path, "sent")) == 1
        assert len(set(calls(tmp_path, "paid"))) == 1
        supersteps = dict(
            installation.ask("SELECT id::text, superstep FROM checkpoints_run")
        )
        assert supersteps[payment] == 4
        assert supersteps[later] == 6
    finally:
        worker.kill_all()
