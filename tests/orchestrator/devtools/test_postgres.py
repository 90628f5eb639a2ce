"""The throw-away PostgreSQL."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from orchestrator.devtools.postgres import Postgres
from tests.house.commands import ROOT


@pytest.fixture
def folder() -> Iterator[Path]:
    # pytest's own folders are below one that only its owner may enter, and the server
    # may run as another user.
    with tempfile.TemporaryDirectory(prefix="cs-") as name:
        Path(name).chmod(0o755)
        yield Path(name) / "pg"


def connect(folder: Path) -> psycopg.Connection:
    return psycopg.connect(
        f"user=postgres dbname=countersign host={folder}", autocommit=True
    )


def ask(folder: Path, query: str) -> object:
    with connect(folder) as link:
        return link.execute(query).fetchone()


def tell(folder: Path, command: str) -> None:
    with connect(folder) as link:
        link.execute(command)


def test_it_answers_on_a_unix_socket_and_leaves_nothing(folder: Path) -> None:
    server = Postgres(folder)
    try:
        assert server.start() == f"postgres://postgres@/countersign?host={folder}"
        assert ask(folder, "SHOW listen_addresses") == ("",)
    finally:
        server.stop()
    assert not folder.exists()


def test_what_is_to_be_kept_is_there_again(folder: Path) -> None:
    server = Postgres(folder, keep=True)
    try:
        server.start()
        assert ask(folder, "SHOW synchronous_commit") == ("on",)
        tell(folder, "CREATE TABLE kept AS SELECT 42 AS answer")
        server.stop()
        server.start()
        assert ask(folder, "SELECT answer FROM kept") == (42,)
    finally:
        server.stop()


def test_it_dies_with_the_process_that_started_it_even_when_that_is_killed(
    folder: Path,
) -> None:
    code = (
        "import sys, time; from pathlib import Path; from"
        " orchestrator.devtools.postgres import Postgres;"
        "Postgres(Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"up\n"
    pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    give_up = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    with pytest.raises(RuntimeError, match=r"did not start:\n.*"):
        Postgres(folder).start()


def test_a_path_too_long_for_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="too long a path"):
        Postgres(folder / ("x" * 100)).start()
