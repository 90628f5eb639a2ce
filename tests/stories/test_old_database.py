"""A database that an older version wrote opens, verifies, is read, and every run in it
goes on to its end.
"""

import gzip
import json
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.house import commands
from tests.stories.client import Client
from tests.stories.old_database import graphs
from tests.stories.old_database.shapes import shapes
from tests.support.clusters import Command
from tests.support.processes import until, web, worker

pytestmark = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the old database is a file of SQLite"
)
FIXTURE = Path(graphs.__file__).with_name("countersign-3e5b134.sqlite3.gz")
FOUND = {
    "remembered": "completed",
    "completed": "completed",
    "refused": "completed",
    "cancelled": "cancelled",
    "looped": "completed",
    "open": "paused",
    "one of two": "paused",
    "signed": "queued",
    "encrypted": "paused",
    "failed": "failed",
    "remembered again": "completed",
    "unknown": "unknown",
    "waiting": "waiting",
    "queued": "queued",
    "worker died": "running",
}
"""Each run by its key, and its status when the older version was stopped."""
OUTSIDE = ["open paid", "one of two paid", "signed paid", "encrypted paid"]
"""What is still to be done outside. What was ordered before is not ordered again, and
the letter was sent.
"""


class Old:
    """A copy of the old database, what today's code found in it, and the processes that
    use it.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "old.sqlite3"
        self.outside = folder / "outside.log"
        self.folder = folder
        self.file.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
        ((self.fork,),) = self.rows(
            "SELECT run_id FROM checkpoints_checkpoint WHERE source = 'fork'"
        )
        self.environment = {
            **graphs.ENVIRONMENT,
            "DJANGO_SETTINGS_MODULE": "tests.stories.old_database.settings",
            "DATABASE_URL": f"sqlite:///{self.file}",
            "COUNTERSIGN_DATA_DIR": str(folder / "data"),
            "OLD_DATABASE_OUTSIDE": str(self.outside),
        }
        self.findings = json.loads(
            self.call("-m", "tests.stories.old_database.visit", self.fork)
        )

    def call(self, *words: str) -> str:
        """Return what a Python program prints."""
        done = commands.run(sys.executable, *words, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, sql: str, *params: Any) -> list[Any]:
        """Return rows by plain SQL, which depends on no version of ours."""
        with closing(sqlite3.connect(self.file)) as raw:
            return raw.execute(sql, params).fetchall()

    @contextmanager
    def office(self) -> Iterator["Office"]:
        """The people at the API, with the tokens that they have had all the time."""
        with web(self.folder / "web.log", **self.environment) as address:
            yield Office(address)


class Office:
    """What Olive, Rita and Ravi can do."""

    def __init__(self, address: str) -> None:
        self.olive, self.rita, self.ravi = (
            Client(address, graphs.TOKENS[name]) for name in ("olive", "rita", "ravi")
        )

    def run(self, key: str) -> Any:
        return self.olive.get(f"/runs/{key.replace(' ', '%20')}/")

    def state(self, key: str) -> Any:
        return self.olive.get(f"/checkpoints/{self.run(key)['head']}/state/")["scratch"]

    def rest(self, key: str) -> str:
        """The status in which the run comes to rest."""
        return str(
            until(lambda: self._resting(key), seconds=60, what=f"run {key} to rest")
        )

    def _resting(self, key: str) -> str:
        status = self.run(key)["status"]
        return "" if status in ("queued", "running", "waiting") else status

    def sign(self, who: Client, key: str) -> None:
        """Approve all that the run asks him."""
        run = self.run(key)["id"]
        (request,) = [
            result
            for result in who.get("/requests/?waiting=me")["results"]
            if result["run"] == run
        ]
        writes = who.get(f"/requests/{request['id']}/")["writes"]
        decisions = [
            {"write": write["id"], "hash": write["hash"], "verdict": "approve"}
            for write in writes
        ]
        status, receipt = who.post(f"/runs/{run}/signatures/", {"decisions": decisions})
        assert status in (200, 201), receipt
        assert [line["result"] for line in receipt["lines"]] == ["counted"] * 3

    def post(self, key: str, verb: str, body: Any) -> None:
        status, answer = self.olive.post(f"/runs/{self.run(key)['id']}/{verb}/", body)
        assert status == 200, answer


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    return Old(tmp_path_factory.mktemp("old"))


def test_it_is_migrated_and_every_record_in_it_verifies_and_is_read(old: Old) -> None:
    findings = old.findings
    assert findings["verified"] == {"checked": len(FOUND), "bad": []}
    runs = findings["runs"]
    assert {key: run["status"] for key, run in runs.items()} == FOUND
    assert runs["completed"]["states"][0]["notes"] == [
        "order completed",
        "agreed",
        "paid 9",
    ]
    assert runs["encrypted"]["states"][0]["notes"] == ["order encrypted"]
    assert [line["seq"] for line in runs["looped"]["checkpoints"]] == [
        *range(20, -1, -1)
    ]
    assert [state["total"] for state in runs["looped"]["states"]] == [
        *range(20, -1, -1)
    ]
    assert [len(state["notes"]) for state in runs["looped"]["states"]] == [
        *range(20, -1, -1)
    ]
    verdicts = [
        (decision["by"], decision["channel"], decision["verdict"])
        for decision in runs["completed"]["decisions"]
    ]
    assert verdicts == [
        ("rita", "payout", "edit"),
        ("rita", "letter", "reject"),
        ("rita", "notes", "approve"),
    ]
    for run in runs.values():
        assert [line["seq"] for line in run["events"]] == [
            *range(1, len(run["events"]) + 1)
        ]
    assert [line["type"] for line in runs["one of two"]["events"]][-3:] == [
        "decision_signed"
    ] * 3
    assert findings["cellar"]["scratch"] == {"bottles": 7}
    assert {
        page: status for page, status in findings["shown"].items() if status != 200
    } == {}


def test_before_its_rows_are_sealed_anew_everybody_is_told_which_command_does_it(
    old: Old,
) -> None:
    before = old.findings["before"]
    for command in ("verify_runs", "worker"):
        assert "in the format of an older release" in before[command]
        assert "`manage.py seal_anew`" in before[command]
    assert before["advanced"] == before["token"] == "older_seal"
    assert before["status"] == "queued"
    assert {fault["code"] for fault in before["faults"]} == {"older_seal"}
    assert "manage.py seal_anew" in before["page"]
    assert "tampered" not in before["page"].lower()


def test_its_rows_are_sealed_anew_once(old: Old) -> None:
    counts, again = old.findings["renewed"]
    assert counts["checkpoints_runevent"] > 100
    assert counts["approvals_decision"] == 12
    assert again == {}


def test_up_seals_its_rows_anew_before_its_worker_starts(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite3"
    file.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **graphs.ENVIRONMENT,
        "DJANGO_SETTINGS_MODULE": "tests.stories.old_database.settings",
        "DATABASE_URL": f"sqlite:///{file}",
        "COUNTERSIGN_DATA_DIR": str(tmp_path / "data"),
        "OLD_DATABASE_OUTSIDE": str(tmp_path / "outside.log"),
    }
    log = tmp_path / "up.log"
    up = Command("up", "--port", str(port), log=log, **environment)
    try:
        up.says("worker_started")
    finally:
        up.kill_all()
    assert "rows are sealed anew." in log.read_text()
    with closing(sqlite3.connect(file)) as raw:
        marks = raw.execute("SELECT count(*) FROM checkpoints_olderseals").fetchone()
    assert marks == (0,)


def test_its_tables_are_those_of_a_new_database(old: Old, db: None) -> None:
    """The squashed migrations make what the migrations that they replace made."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?"
    with connection.cursor() as new:
        for app in ("approvals", "checkpoints", "orchestrator"):
            tables = {name for (name,) in old.rows(names, f"{app}_%")}
            assert len(tables) > 2
            for table in tables:
                new.execute(f"PRAGMA table_info({table})")
                columns = {described[1:4] for described in new.fetchall()}
                before = old.rows(f"PRAGMA table_info({table})")
                assert {described[1:4] for described in before} == columns, table
                new.execute(f"PRAGMA index_list({table})")
                indices = {described[1:5:2] for described in new.fetchall()}
                before = old.rows(f"PRAGMA index_list({table})")
                assert {described[1:5:2] for described in before} == indices, table


def test_what_is_written_today_has_every_key_and_word_that_it_had(
    tmp_path: Path,
) -> None:
    before = tmp_path / "before.sqlite3"
    now = tmp_path / "now.sqlite3"
    made = tmp_path / "now.sqlite3.gz"
    done = commands.run(sys.executable, FIXTURE.with_name("make.py"), made)
    assert done.returncode == 0, done.stdout + done.stderr
    before.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
    now.write_bytes(gzip.decompress(made.read_bytes()))
    had = shapes(before)
    assert len(had) > 300
    assert had - shapes(now) == set()


def test_every_run_in_it_goes_on_to_its_end_once(old: Old) -> None:
    with old.office() as office:
        with worker(old.folder / "worker.log", **old.environment):
            for key in ("queued", "worker died", "signed", "waiting"):
                assert office.rest(key) == "completed", key
            assert office.run("open")["status"] == "paused"
            assert office.run("one of two")["status"] == "paused"
            office.sign(office.rita, "open")
            office.sign(office.ravi, "one of two")
            office.sign(office.rita, "encrypted")
            office.post("failed", "resume", {})
            settled = {
                "task": "send:1:0",
                "happened": True,
                "output": {"letter": "sent"},
                "reason": "seen in the post",
            }
            office.post("unknown", "settle", settled)
            ended = {key: office.rest(key) for key in FOUND} | {
                "fork": office.rest(old.fork)
            }
            until(lambda: _jobs(old) == ["done"], what="the job to be done")
        assert ended == dict.fromkeys(ended, "completed") | {"cancelled": "cancelled"}
        assert office.state("failed")["notes"] == [
            "ordered",
            "the sky was blue",
            "the sky is grey",
        ]
        assert office.state("queued")["notes"] == ["version 2: grey", "sky"]
        assert office.state("signed")["notes"] == [
            "order signed",
            "agreed by Rita",
            "paid 10",
        ]
        assert office.state("unknown")["letter"] == "sent"
        assert (
            office.state("worker died")["total"]
            == office.state(old.fork)["total"]
            == 20
        )
    done = [line.rsplit(" ", 1)[0] for line in old.outside.read_text().splitlines()]
    assert sorted(done) == sorted(OUTSIDE)
    verified = json.loads(old.call("manage.py", "verify_runs", "--json"))
    assert verified == {"checked": len(FOUND) + 1, "bad": []}


def _jobs(old: Old) -> list[str]:
    return [
        status
        for (status,) in old.rows(
            "SELECT status FROM checkpoints_job WHERE kind = 'verify_runs'"
        )
    ]
