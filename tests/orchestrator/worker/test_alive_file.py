"""The file of a worker's main process: young while that one works, drains or waits for
its database, and old when it hangs.
"""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environment import variable_of
from orchestrator.worker import alive_file
from orchestrator.worker.alive_file import TOUCH_SECONDS, VARIABLE, AliveFile
from tests.support.clusters import Command, begun, cluster, send, slow
from tests.support.processes import until


def _touched(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0


def _touched_again(file: Path, *, times: int = 3) -> None:
    """Wait until it was touched that often. Fails if that takes too long."""
    for _ in range(times):
        before = _touched(file)
        until(
            lambda before=before: _touched(file) > before,
            seconds=20,
            what="the file to be touched",
        )


def test_the_variable_is_one_of_those_that_are_described() -> None:
    assert variable_of("alive_file") == VARIABLE


def test_a_file_is_touched_once_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "alive"))
    alive = AliveFile.from_environment()
    assert not (tmp_path / "alive").exists()
    alive.touch()
    os.utime(tmp_path / "alive", (0, 0))
    alive.touch()
    assert _touched(tmp_path / "alive") == 0
    later = time.monotonic() + TOUCH_SECONDS
    monkeypatch.setattr("time.monotonic", lambda: later)
    alive.touch()
    assert _touched(tmp_path / "alive") > 0


def test_without_a_name_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(Path, "touch", fail)
    for name in ("", " "):
        monkeypatch.setenv(VARIABLE, name)
        AliveFile.from_environment().touch()
    monkeypatch.delenv(VARIABLE)
    AliveFile.from_environment().touch()


def test_a_file_that_cannot_be_touched_costs_a_line_in_the_log_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[Any] = []

    class Log:
        def warning(self, *words: Any, **facts: Any) -> None:
            lines.append((*words, facts))

    monkeypatch.setattr(alive_file, "log", Log())
    path = tmp_path / "missing" / "alive"
    AliveFile(path).touch()
    facts = {"path": str(path), "error": "No such file or directory"}
    assert lines == [("alive_file_not_touched", facts)]


@pytest.mark.django_db(transaction=True)
def test_a_worker_touches_its_file_also_while_it_drains_and_not_when_it_is_frozen(
    tmp_path: Path,
) -> None:
    file = tmp_path / "alive"
    variables = {VARIABLE: str(file), "COUNTERSIGN_GRACE_SECONDS": "60"}
    with cluster(tmp_path, **variables) as started:
        _touched_again(file)
        begun(slow(60))
        pusher = started.pusher()
        send(started.main.pid, signal.SIGTERM)
        # From then on nothing beats in the database.
        until(lambda: pusher not in started.alive(), what="the pusher to end")
        _touched_again(file)

        send(started.main.pid, signal.SIGSTOP)
        time.sleep(0.5)
        before = _touched(file)
        time.sleep(TOUCH_SECONDS * 3)
        assert _touched(file) == before


@pytest.mark.parametrize("answers", ["refuses", "says nothing"])
def test_a_worker_that_waits_for_its_database_is_alive(
    answers: str, tmp_path: Path
) -> None:
    file = tmp_path / "alive"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if answers == "refuses":
            server.close()
        url = f"postgres://nobody@127.0.0.1:{port}/none"
        variables = {VARIABLE: str(file), "DATABASE_URL": url}
        worker = Command("worker", log=tmp_path / "log", **variables)
        try:
            worker.until(file.exists)
            # Longer than the first pauses together.
            _touched_again(file, times=8)
            assert worker.main.poll() is None
        finally:
            worker.kill_all()
