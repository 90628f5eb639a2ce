"""The probe of a web process: one that answers lives, whatever it thinks of the name."""

import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.house.commands import ROOT


def _probe_of_a_process_that_answers(status: int) -> int:
    """Return the exit code of the probe."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.handle_request, daemon=True).start()
        command = [sys.executable, str(ROOT / "deploy" / "healthy.py")]
        done = subprocess.run([*command, str(server.server_port)], timeout=60)
    return done.returncode


@pytest.mark.parametrize(
    ("status", "code"), [(200, 0), (301, 0), (400, 0), (500, 1), (503, 1)]
)
def test_a_process_that_answers_is_alive(status: int, code: int) -> None:
    assert _probe_of_a_process_that_answers(status) == code


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["web", "8123"], "healthy.py 8123"),
        (["8123"], "healthy.py 8123"),
        (["worker"], "-m django worker --alive"),
    ],
)
def test_the_role_can_be_named(words: list[str], called: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy" / "entry.sh", tmp_path / "countersign")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    command = ["sh", str(tmp_path / "countersign"), "healthy", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().endswith(called)
