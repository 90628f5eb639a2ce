"""Real processes against the test database: workers that tests may kill, freeze and
drain.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]


def database_url() -> str:
    """DATABASE_URL of the database that this test uses."""
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{settings['NAME']}"
    return f"postgres://{settings['USER']}@/{settings['NAME']}?host={quote(str(settings['HOST']))}"


def environment(**options: str) -> dict[str, str]:
    """The environment of a process of the test's own, with a short lease."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": database_url(),
        "COUNTERSIGN_LEASE_SECONDS": "2",
        "COUNTERSIGN_LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
        **options,
    }


@contextmanager
def worker(log: Path, **env: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A `manage.py worker`, killed with all its children at the end. Its output is
    appended to `log`.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker"],
            cwd=ROOT,
            env=environment(**env),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(5)


@contextmanager
def web(
    log: Path, *, application: str = "orchestrator.asgi:application", **env: str
) -> Iterator[str]:
    """A daphne that serves the project, or another application; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "daphne",
                "-b",
                "127.0.0.1",
                "-p",
                str(port),
                application,
            ],
            cwd=ROOT,
            env=environment(**env),
            stdout=out,
            stderr=out,
        )
        try:
            until(lambda: _answers(port), what=f"the web process, see {log}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(15)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def until(
    condition: Callable[[], Any], *, seconds: float = 40.0, what: str = ""
) -> Any:
    """The condition's first true value. Fails with `what` and the last value where it
    does not come.
    """
    end = time.monotonic() + seconds
    value = condition()
    while not value:
        assert time.monotonic() < end, (
            f"waited {seconds:g} s for {what or condition}; last: {value!r}"
        )
        time.sleep(0.05)
        value = condition()
    return value


def calls(folder: Path, what: str = "") -> list[str]:
    """The lines that effects of test graphs left outside, those that begin with `what`."""
    log = folder / "outside.log"
    return (
        [line for line in log.read_text().splitlines() if line.startswith(what)]
        if log.exists()
        else []
    )


def with_mark(folder: Path, kill: str) -> Mapping[str, str]:
    """The environment that kills once at this moment."""
    return {"COUNTERSIGN_KILL": kill, "COUNTERSIGN_KILL_MARK": str(folder / "killed")}
