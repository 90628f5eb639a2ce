"""Real workers beside the bench: `manage.py worker`, started and drained with a block."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.places import ROOT, Place


@contextmanager
def worker(place: Place, *, slots: int) -> Iterator[int]:
    """Run one worker with so many worker processes, until the block ends. Yields the
    session that all of its processes belong to.
    """
    with (place.folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker"],
            cwd=ROOT,
            env=place.environment(COUNTERSIGN_WORKERS=str(slots)),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process.pid
        assert process.poll() is None, (
            f"the worker ended by itself: {(place.folder / 'worker.log').read_text()}"
        )
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
