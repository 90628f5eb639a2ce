"""The probe of a web process: one that answers lives, whatever it thinks of the name."""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
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
