"""Web server and worker as one: started, watched and stopped together. Called by `manage.py up`; needs no Django."""

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
    """Two children in sessions of their own: signals of a terminal reach them only through us, in the right order."""

    def __init__(self, *, web: Sequence[str], worker: Sequence[str], env: Mapping[str, str], grace: float) -> None:
        self._web_command, self._worker_command = web, worker
        self.env = env
        self._grace = grace
        self._pauses = Pauses()
        self._web: Process | None = None
        self._worker: Process | None = None
        self._worker_began = self._worker_due = 0.0
        self.stop = StopRequest()

    def start(self) -> None:
        """Start both. From here on SIGTERM and SIGINT are noted, and `run` acts on them."""
        self.stop.listen()
        self._web = self._spawn(self._web_command)
        self._start_worker()

    def wait_for(self, address: tuple[str, int], *, seconds: float) -> bool:
        """Until the web server answers. False: it has ended, or we were asked to stop, or it took too long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._serving():
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
                return True
            time.sleep(0.05)
        return False

    def beside(self, command: Sequence[str]) -> int:
        """Run a third one to its end, or to ours. Gives its exit code, 0 where we were asked to stop."""
        third = self._spawn(command)
        while third.poll() is None and not self.stop.asked:
            time.sleep(0.05)
        if self.stop.asked:
            _send(third, signal.SIGKILL)
        return 0 if self.stop.asked else third.wait()

    def run(self) -> int:
        """Until the web server ends or we are asked to stop; then end both. Gives the exit code."""
        while self._serving():
            self._look_after_worker()
            time.sleep(0.1)
        code = 0
        if self._web is not None and not self.stop.asked:
            code = self._web.returncode
            sys.stderr.write(f"The web server has ended ({_ending(code)}), so the worker is stopped too.\n")
        return self.end() or code or 0

    def _serving(self) -> bool:
        return not self.stop.asked and self._web is not None and self._web.poll() is None

    def end(self) -> int:
        """Ask both to end; kill what has not after the grace period, or at a second signal. 0: none was killed."""
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
        return subprocess.Popen(command, env=self.env, start_new_session=True, preexec_fn=end_with_parent)

    def _start_worker(self) -> None:
        self._worker, self._worker_began = self._spawn(self._worker_command), time.monotonic()

    def _look_after_worker(self) -> None:
        """Start a worker that died again, after a pause. One that ended well was asked to, by `manage.py drain`."""
        if self._worker is None:
            if time.monotonic() >= self._worker_due:
                self._start_worker()
        elif self._worker.poll():
            pause = self._pauses.after(time.monotonic() - self._worker_began)
            self._worker, self._worker_due = None, time.monotonic() + pause
            sys.stderr.write(f"The worker has ended; it starts again in {pause:g} s.\n")


def _ending(code: int) -> str:
    """Say how a process ended, by its exit code; a negative one is the number of the signal that killed it."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _send(child: Process, number: int) -> None:
    """To the main process alone: the worker's own children are its business."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
