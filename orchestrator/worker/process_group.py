"""A web server and a worker that are started, watched and stopped together. Called by
`manage.py up`; needs no Django.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from orchestrator.worker.child_process import end_with_parent
from orchestrator.worker.signals import Pauses, StopRequest

Process = subprocess.Popen[bytes]


class ProcessGroup:
    """Two child processes, each in its own session, so that signals of a terminal reach
    them only through this process, in the right order.
    """

    def __init__(
        self,
        *,
        web: Sequence[str],
        worker: Sequence[str],
        env: Mapping[str, str],
        grace: float,
    ) -> None:
        self._web_command = web
        self._worker_command = worker
        self.env = env
        self._grace = grace
        self._pauses = Pauses()
        self._web: Process | None = None
        self._worker: Process | None = None
        self._worker_began = 0.0
        self._worker_due = 0.0
        self.stop = StopRequest()

    def start(self) -> None:
        """Start both. From now on SIGTERM and SIGINT are noted, and `run` acts on
        them.
        """
        # Before there is a child, so that a stop in between ends what was started.
        self.stop.listen()
        self._web = self._spawn(self._web_command)
        self._start_worker()

    def wait_for(self, address: tuple[str, int], *, seconds: float) -> bool:
        """Wait until the web server answers. Return False if it has ended, took too
        long, or a stop was requested.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._serving():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(address, timeout=1),
            ):
                return True
            time.sleep(0.05)
        return False

    def beside(self, command: Sequence[str]) -> int:
        """Run a third process until it ends, or until a stop is requested. Return its
        exit code, or 0 if a stop was requested.
        """
        third = self._spawn(command)
        # Polled, because a wait for the process would not end when a stop is requested.
        while third.poll() is None and not self.stop.requested:
            time.sleep(0.05)
        if self.stop.requested:
            _send(third, signal.SIGKILL)
            return 0
        return third.wait()

    def run(self) -> int:
        """Wait until the web server ends or a stop is requested, then end both. Return
        the exit code.
        """
        while self._serving():
            self._look_after_worker()
            time.sleep(0.1)
        code = 0
        if self._web is not None and not self.stop.requested:
            code = self._web.returncode
            sys.stderr.write(
                f"The web server has ended ({_ending(code)}), "
                "so the worker is stopped too.\n"
            )
        return self.end() or code or 0

    def _serving(self) -> bool:
        if self.stop.requested or self._web is None:
            return False
        return self._web.poll() is None

    def end(self) -> int:
        """Terminate both; kill what has not ended after the grace period, or at a
        second signal. Return 1 if anything was killed, else 0.
        """
        children = [child for child in (self._web, self._worker) if child is not None]
        for child in children:
            _send(child, signal.SIGTERM)
        until = time.monotonic() + self._grace
        while any(child.poll() is None for child in children):
            if self.stop.at_once or time.monotonic() > until:
                for child in children:
                    _send(child, signal.SIGKILL)
                    child.wait()
                return 1
            time.sleep(0.05)
        return 0

    def _spawn(self, command: Sequence[str]) -> Process:
        # Bound between fork and exec, so that the command never runs unbound.
        return subprocess.Popen(
            command, env=self.env, start_new_session=True, preexec_fn=end_with_parent
        )

    def _start_worker(self) -> None:
        self._worker = self._spawn(self._worker_command)
        self._worker_began = time.monotonic()

    def _look_after_worker(self) -> None:
        """Restart a worker that died, after a pause. One that ended with 0 was drained
        by `manage.py drain`, and stays so.
        """
        if self._worker is None:
            if time.monotonic() >= self._worker_due:
                self._start_worker()
        elif self._worker.poll():
            pause = self._pauses.after(time.monotonic() - self._worker_began)
            self._worker = None
            self._worker_due = time.monotonic() + pause
            sys.stderr.write(f"The worker has ended; it starts again in {pause:g} s.\n")


def _ending(code: int) -> str:
    """Return in words how a process ended. A negative exit code is the number of the
    signal that killed it.
    """
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"


def _send(child: Process, number: int) -> None:
    """Send a signal to the main process alone; the worker handles its own children."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
