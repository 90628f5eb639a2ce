"""The probe of a container: a web process that answers lives, whatever it thinks of the
name, and a worker that touched its file lately.
"""

import os
import runpy
import shutil
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.house.commands import ROOT

PROBE = ROOT / "deploy" / "healthy.py"


def _probe_of_a_process_that_answers(status: int) -> int:
    """Return the exit code of the probe."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.handle_request, daemon=True).start()
        command = [sys.executable, str(PROBE), "web"]
        done = subprocess.run([*command, str(server.server_port)], timeout=60)
    return done.returncode


@pytest.mark.parametrize(
    ("status", "code"), [(200, 0), (301, 0), (400, 0), (500, 1), (503, 1)]
)
def test_a_process_that_answers_is_alive(status: int, code: int) -> None:
    assert _probe_of_a_process_that_answers(status) == code


def _probe_of_a_worker(file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        # It needs none of the packages that are installed.
        [sys.executable, "-I", "-S", str(PROBE), "worker"],
        env={"COUNTERSIGN_ALIVE_FILE": str(file)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("age", "code"),
    # A clock that was set back does not keep a worker alive that hangs.
    [(0, 0), (20, 0), (40, 1), (-40, 1)],
)
def test_a_worker_lives_that_touched_its_file_lately(
    age: int, code: int, tmp_path: Path
) -> None:
    file = tmp_path / "alive"
    file.touch()
    moment = time.time() - age
    os.utime(file, (moment, moment))
    done = _probe_of_a_worker(file)
    assert done.returncode == code
    assert ("has not touched" in done.stderr) == bool(code)


def test_a_worker_without_a_file_has_not_begun(tmp_path: Path) -> None:
    done = _probe_of_a_worker(tmp_path / "alive")
    assert done.returncode == 1
    assert "has not begun" in done.stderr


@pytest.mark.parametrize(
    ("line", "role", "port"),
    [
        ("tini -- countersign worker", "worker", 8000),
        ("tini -- countersign web", "web", 8000),
        ("tini -p SIGKILL -- countersign web -p 9000", "web", 9000),
        ("tini -- countersign web --port=9000 -v 1", "web", 9000),
        ("python -m daphne -p 8000 -p 9000 orchestrator.asgi:application", "web", 9000),
        ("python -m django worker", "worker", 8000),
        ("/pause", "web", 8000),
    ],
)
def test_role_and_port_are_those_that_the_container_was_started_with(
    line: str, role: str, port: int
) -> None:
    probe = runpy.run_path(str(PROBE))
    assert probe["role_among"](line.split()) == role
    assert probe["port_among"](line.split()) == port


def _called(words: list[str], folder: Path, **env: str) -> str:
    """Return the words and the file with which the entry calls Python."""
    shutil.copy(ROOT / "deploy" / "entry.sh", folder / "countersign")
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "$*, $COUNTERSIGN_ALIVE_FILE"\n')
    python.chmod(0o755)
    command = ["sh", str(folder / "countersign"), *words]
    variables = {"PATH": os.environ["PATH"], **env}
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("words", ["healthy web 8123", "healthy worker", "healthy"])
def test_the_probe_is_handed_its_words(words: str, tmp_path: Path) -> None:
    called = _called(words.split(), tmp_path)
    assert called.startswith(f"{tmp_path}/healthy.py{words.removeprefix('healthy')},")


def test_worker_and_probe_agree_on_a_file_and_no_earlier_one_counts(
    tmp_path: Path,
) -> None:
    own = {"TMPDIR": str(tmp_path)}
    file = tmp_path / "countersign-worker"
    file.touch()
    probe = _called(["healthy", "worker"], tmp_path, **own)
    assert probe == f"{tmp_path}/healthy.py worker, {file}"
    assert file.exists()
    worker = _called(["worker"], tmp_path, **own)
    assert worker == f"-m django worker, {file}"
    assert not file.exists()


def test_the_file_can_be_named(tmp_path: Path) -> None:
    called = _called(["worker"], tmp_path, COUNTERSIGN_ALIVE_FILE="/run/alive")
    assert called.endswith(", /run/alive")
