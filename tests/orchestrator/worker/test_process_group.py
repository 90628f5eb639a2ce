"""`manage.py up`: web server and worker start as one and leave nothing behind."""

import os
import shutil
import signal
import socket
import tempfile
import urllib.request
from pathlib import Path

import pytest
from django.db import connection

from tests.support.clusters import Command, children, ended, send, slow
from tests.support.processes import until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "sqlite",
        reason="the same on each database; one test brings a PostgreSQL",
    ),
]


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def up(tmp_path, port):
    """`up` on a free port, said to be running."""
    command = Command("up", "--port", str(port), log=tmp_path / "up.log")
    try:
        command.says(f"running at http://127.0.0.1:{port}/")
        yield command
    finally:
        command.kill_all()


def the_worker(up, port):
    """The main process of its worker: the child that is not the web server."""
    return next(pid for pid in children(up.main.pid) if str(port) not in _words(pid))


def _words(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_pages_works_on_runs_and_stops_cleanly(up, port, number):
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/static/countersign/css/console.css"
    ) as answer:
        assert answer.status == 200
    ended(slow())
    up.main.send_signal(number)
    assert up.main.wait(15) == 0
    assert up.alive() == []


def test_killing_it_leaves_nothing_alive(up):
    until(lambda: len(up.alive()) >= 8, what="web server, worker and its cluster")
    up.main.kill()
    until(lambda: not up.alive(), seconds=10, what="all processes to end")


def test_a_worker_that_dies_is_started_again_and_without_the_web_server_all_ends(
    up, port
):
    first = the_worker(up, port)
    send(first, signal.SIGKILL)
    until(
        lambda: [
            pid
            for pid in children(up.main.pid)
            if pid != first and str(port) not in _words(pid)
        ]
    )
    ended(slow())
    assert "starts again in 0.5 s" in up.log.read_text()
    send(
        next(pid for pid in children(up.main.pid) if str(port) in _words(pid)),
        signal.SIGTERM,
    )
    up.main.wait(15)
    assert up.alive() == []


@pytest.mark.parametrize(
    ("number", "how"),
    [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGTERM, "exit code 0")],
)
def test_it_says_that_the_web_server_has_ended_and_how(up, port, number, how):
    send(next(pid for pid in children(up.main.pid) if str(port) in _words(pid)), number)
    up.main.wait(15)
    assert (
        f"The web server has ended ({how}), so the worker is stopped too."
        in up.log.read_text()
    )


def test_asked_to_stop_it_does_not_say_that_the_web_server_has_ended(up):
    up.main.send_signal(signal.SIGTERM)
    up.main.wait(15)
    assert "The web server has ended" not in up.log.read_text()


def test_it_brings_a_postgresql_of_its_own(tmp_path, port):
    env = {
        "COUNTERSIGN_DATA_DIR": tempfile.mkdtemp(prefix="countersign-up-"),
        "DATABASE_URL": "",
    }
    os.chmod(
        env["COUNTERSIGN_DATA_DIR"], 0o755
    )  # the server runs as another user where we are root
    command = Command(
        "up", "--postgres", "--port", str(port), log=tmp_path / "up.log", **env
    )
    try:
        command.says("is running at")
        assert "export DATABASE_URL='postgres://" in command.log.read_text()
        assert (
            len(list(Path(env["COUNTERSIGN_DATA_DIR"], "postgres").glob(".s.PGSQL*")))
            == 2
        )
        command.main.send_signal(signal.SIGTERM)
        assert command.main.wait(15) == 0
        assert command.alive() == []
    finally:
        command.kill_all()
        shutil.rmtree(env["COUNTERSIGN_DATA_DIR"])
