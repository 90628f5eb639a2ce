"""Clusters of real processes that tests kill one by one, found by a mark in their
environment.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connections
from django_q.signing import SignedPackage

from checkpoints.models import Run, Worker
from checkpoints.queue.leases import Claim
from orchestrator import runs
from tests.support.processes import ROOT, environment, until

MARK = "COUNTERSIGN_TEST_MARK"


class Command:
    """A management command in a process of its own, and everything that was forked from
    it.
    """

    def __init__(self, *words: str, log: Path, **env: str) -> None:
        self.mark = uuid4().hex
        self.log = log
        settings = {
            "COUNTERSIGN_GRACE_SECONDS": "1",
            "COUNTERSIGN_LOG_LEVEL": "INFO",
            MARK: self.mark,
            **env,
        }
        with log.open("ab") as out:
            self.main = subprocess.Popen(
                [sys.executable, "manage.py", *words],
                cwd=ROOT,
                env=environment(**settings),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def says(self, text: str) -> None:
        """Wait until its output has this text. Fails with what it said instead, at once
        if it ended.
        """
        self.until(lambda: text in self.log.read_text())

    def until(self, condition: Callable[[], Any], *, seconds: float = 120.0) -> None:
        """Wait for the condition. Fails with its output, at once if it ended."""
        end = time.monotonic() + seconds
        while not condition():
            hopeless = self.main.poll() is not None or time.monotonic() > end
            assert not hopeless, (
                f"{self.main.args} said:\n{self.log.read_text()[-3000:]}"
            )
            time.sleep(0.05)

    def alive(self) -> list[int]:
        """All its processes that are left, zombies not counted, in the order of their
        birth.
        """
        self.main.poll()
        return sorted((pid for pid in _pids() if self._ours(pid)), key=_born)

    def kill_all(self) -> None:
        """Kill whatever is left of it."""
        for pid in self.alive():
            send(pid, signal.SIGKILL)
        self.main.wait(5)

    def _ours(self, pid: int) -> bool:
        try:
            marked = f"{MARK}={self.mark}".encode() in Path(
                f"/proc/{pid}/environ"
            ).read_bytes().split(b"\0")
        except OSError:
            return False
        return marked and _stat(pid)[0] != "Z"


class Cluster(Command):
    """A `manage.py worker`, or another command that starts a cluster."""

    def row(self) -> Worker:
        """The row of its newest life."""
        return Worker.objects.get(pid=self.sentinel(), stopped_at=None)

    def sentinel(self) -> int:
        """The one child of the main process."""
        return children(self.main.pid)[0]

    def workers(self) -> list[int]:
        """The worker processes: the sentinel forks them first, then the monitor and the
        pusher.
        """
        return children(self.sentinel())[:-2]

    def monitor(self) -> int:
        return children(self.sentinel())[-2]

    def pusher(self) -> int:
        return children(self.sentinel())[-1]

    def busy(self) -> int:
        """The worker that has a run in hand: on a fresh cluster the only one with more
        than one thread.
        """
        return next(
            pid for pid in self.workers() if len(os.listdir(f"/proc/{pid}/task")) > 1
        )

    def ready(self, *, seconds: float = 120.0) -> "Cluster":
        """Wait until it has shown itself."""
        self.until(self._shown, seconds=seconds)
        return self

    def _shown(self) -> bool:
        below = children(self.main.pid)
        return (
            bool(below)
            and Worker.objects.filter(pid=below[0], stopped_at=None).exists()
        )


@contextmanager
def cluster(folder: Path, *words: str, **env: str) -> Iterator[Cluster]:
    """Start a cluster and wait until it is ready. Nothing of it is left afterwards."""
    started = Cluster(*(words or ("worker",)), log=folder / f"{uuid4().hex}.log", **env)
    try:
        yield started.ready()
    finally:
        started.kill_all()
        connections.close_all()


def slow(seconds: float = 0.0, *, folder: Path | str = "") -> Run:
    """A run that keeps a worker busy for so long; in the folder it leaves a line when
    its node has begun.
    """
    return runs.start("slow", {"seconds": seconds, "folder": str(folder)})


def status(run: Run) -> str:
    """Return the status of a run as it is in the database now."""
    return Run.objects.values_list("status", flat=True).get(id=run.id)


def ended(*begun: Run, seconds: float = 20.0) -> None:
    """Wait until all of them are completed."""
    ids = [run.id for run in begun]
    left = Run.objects.filter(id__in=ids).exclude(status="completed")
    until(
        lambda: not left.exists(), seconds=seconds, what=f"{len(ids)} runs to complete"
    )


def begun(run: Run) -> None:
    """Wait until a worker has it in hand."""
    until(
        lambda: Run.objects.filter(
            id=run.id, status="running", claims_since_progress__gt=0
        ).exists(),
        seconds=20,
    )


def send(pid: int, number: int) -> None:
    """A signal, if there is still anybody to get it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid: int) -> list[int]:
    """Return the children of a process, oldest first, without zombies."""
    pids = [
        child
        for child in _pids()
        if _stat(child)[1:2] == [str(pid)] and _stat(child)[0] != "Z"
    ]
    return sorted(pids, key=lambda child: (_born(child), child))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z"]


def _born(pid: int) -> int:
    return int(_stat(pid)[19]) if len(_stat(pid)) > 19 else 0


def handed_out(broker):
    """The claims in the messages that the broker gives now."""
    return [
        Claim(*message["args"])
        for message in map(SignedPackage.loads, (job[1] for job in broker.dequeue()))
    ]
