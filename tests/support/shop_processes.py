"""Programs of elsewhere in processes of their own, which are killed at the end."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.bridges import Office
from tests.support.processes import ROOT

Shop = Callable[..., Any]


@contextmanager
def program(office: Office, folder: Path, *, pause: float = 0.2) -> Iterator[Shop]:
    """Run the shop until it is killed, and give what has it do something."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.dbos_shop", office.url, office.token]
        + [str(folder), str(pause)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def act(*words: Any) -> Any:
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    try:
        yield act
    finally:
        process.kill()
        process.communicate()


def paid(folder: Path) -> list[str]:
    """Return what the shop in a folder has paid."""
    file = folder / "paid"
    return sorted(file.read_text().splitlines()) if file.exists() else []


@contextmanager
def worker_process(
    broker: str, office: Office, folder: Path, *, restore_after: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker of Celery until it is killed."""
    shop = [broker, office.url, office.token, str(folder), str(restore_after)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.celery_shop", *shop], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
