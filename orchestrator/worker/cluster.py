"""django-q2's cluster with its hangs and orphans repaired. Run by the supervisor; a stock `qcluster` does without.

Exit codes: 70 (of the sentinel) a process died that others wait for, 71 the cluster ended by itself, 72 it was killed.
"""

import contextlib
import gc
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

import structlog
from django.db import Error, connections
from django_q import cluster as stock

from checkpoints.conf import conf
from checkpoints.db.limits import limit_connections
from orchestrator.worker import registration
from orchestrator.worker.broker import RunBroker
from orchestrator.worker.signals import StopRequest
from orchestrator.worker.watchdog import Watchdog

DEAD_PROCESS, ENDED_BY_ITSELF, KILLED = 70, 71, 72
IDLE = -1.0
MARGIN_SECONDS = 5.0
"""What a cluster may take to end, beyond the grace that its runs have."""

log = structlog.get_logger(__name__)


def _set_aside() -> None:
    """Let the collector of garbage pass by what is there before the fork. Each child would go through all of it, soon
    after it began and all at once: its memory is copied meanwhile, and who holds SQLite's write lock stops the others.
    """
    gc.collect()
    gc.freeze()


class RunSentinel(stock.Sentinel):
    """Guards the pool; where a death may have left a lock behind, it gives the whole cluster up."""

    def start(self) -> None:
        """Spawn and guard, in a process group of its own, deaf to signals meant for the main process. What it forks has
        connections with limits.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setpgid(0, 0)
        limit_connections()
        super().start()

    def reincarnate(self, process: Any) -> None:
        """Replace a dead or overdue worker."""
        if process in (self.monitor, self.pusher) or process.timer.value == IDLE:
            log.critical("cluster_given_up", dead=process.pid, exit_code=process.exitcode)
            os._exit(DEAD_PROCESS)
        process.join(1)
        if process.is_alive():
            process.kill()
        super().reincarnate(process)


class RunCluster(stock.Cluster):
    """The main process's view of one cluster: start it, watch it, stop it."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        stock.Sentinel = RunSentinel
        super().__init__(RunBroker())
        self._state = self.broker.state

    def sig_handler(self, signum: int, frame: FrameType | None) -> None:
        """Only noted: stopping inside a handler can wait for a lock that the interrupted code holds."""
        self._stop.note(signum, frame)

    def run(self) -> int:
        """Start the cluster and stay until it has ended. Gives 0 after a drain, else one of the exit codes above."""
        _set_aside()
        try:
            self.start()
            self._watch()
            return self._drain() if self.sentinel.is_alive() else ENDED_BY_ITSELF
        except RuntimeError:  # it did not come up
            return ENDED_BY_ITSELF
        finally:
            self._close()

    def _watch(self) -> None:
        watchdog = Watchdog(self._state)
        while self.sentinel.is_alive() and not (self._stop.asked or self._state.draining()):
            self.sentinel.join(0.1)
            if reason := watchdog.alarm():
                log.critical("cluster_killed", reason=reason)
                self._kill()

    def _drain(self) -> int:
        until = time.monotonic() + conf().grace_seconds + MARGIN_SECONDS
        self._state.drain()
        log.info("worker_drains", grace_seconds=conf().grace_seconds)
        # In a thread: setting an event waits for its waiters, who may be dead.
        threading.Thread(target=self.stop_event.set, daemon=True).start()
        while self.sentinel.is_alive() and not self._stop.at_once and time.monotonic() < until:
            self.sentinel.join(0.1)
        if self.sentinel.is_alive():
            self._kill()
            return KILLED
        return 0 if self.sentinel.exitcode == 0 else ENDED_BY_ITSELF

    def _kill(self) -> None:
        """The sentinel and, on systems without lifelines too, all that it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.sentinel.pid, signal.SIGKILL)
        self.sentinel.kill()
        self.sentinel.join()

    def _close(self) -> None:
        self._state.close()
        try:
            registration.leave(self._state.worker)
        except Error as error:
            log.warning("worker_row_left_open", error=str(error).strip())
        connections.close_all()
