"""The cluster of django-q2 without its hangs and orphans. The supervisor runs it; a
stock `qcluster` does without it.

Exit codes: 70 (of the sentinel) a process died that others wait for, 71 the cluster
ended by itself, 72 it was killed.
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
from checkpoints.db.limits import (
    ANSWER_SECONDS,
    limit_connections,
    require_answer,
    short_statements,
)
from orchestrator.worker import registration
from orchestrator.worker.alive_file import AliveFile
from orchestrator.worker.broker import RunBroker
from orchestrator.worker.signals import StopRequest
from orchestrator.worker.watchdog import Watchdog

DEAD_PROCESS = 70
ENDED_BY_ITSELF = 71
KILLED = 72
IDLE = -1.0
MARGIN_SECONDS = 5.0
"""Seconds that a cluster may take to end, beyond the grace that its runs have."""

log = structlog.get_logger(__name__)


def _set_aside() -> None:
    """Exempt everything that exists before the fork from garbage collection. Otherwise
    each child would go through all of it soon after it began, and all at once: its
    memory would be copied in the meantime, and a child with SQLite's write lock would
    stop the others.
    """
    gc.collect()
    gc.freeze()


class RunSentinel(stock.Sentinel):
    """Guards the pool. If a death may have left a lock behind, it gives up the whole
    cluster.
    """

    def start(self) -> None:
        """Spawn and guard the pool, in a separate process group, ignoring signals that
        are meant for the main process. Forked processes have connections with limits.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # So that one call kills the sentinel and its children, and not the main
        # process.
        os.setpgid(0, 0)
        limit_connections()
        super().start()

    def reincarnate(self, process: Any) -> None:
        """Replace a dead or overdue worker."""
        # The pusher, the monitor or an idle worker may have died with a lock of the
        # shared queues, on which all others would wait forever.
        if process in (self.monitor, self.pusher) or process.timer.value == IDLE:
            log.critical(
                "cluster_given_up", dead=process.pid, exit_code=process.exitcode
            )
            os._exit(DEAD_PROCESS)
        process.join(1)
        # Forked processes ignore SIGTERM, which is all that the stock class sends.
        if process.is_alive():
            process.kill()
        super().reincarnate(process)


class RunCluster(stock.Cluster):
    """The main process's view of one cluster: start it, watch it, stop it."""

    def __init__(self, stop: StopRequest, alive: AliveFile) -> None:
        self._stop = stop
        self._alive = alive
        # The stock cluster finds the class of its sentinel under this name only.
        stock.Sentinel = RunSentinel
        super().__init__(RunBroker())
        self._state = self.broker.state

    def sig_handler(self, signum: int, frame: FrameType | None) -> None:
        """Note the signal only, because stopping inside a handler can wait for a lock
        that the interrupted code holds.
        """
        self._stop.note(signum, frame)

    def run(self) -> int:
        """Start the cluster and wait until it has ended. Return 0 after a drain, else
        one of the exit codes above.
        """
        _set_aside()
        try:
            self.start()
            self._watch()
            return self._drain() if self.sentinel.is_alive() else ENDED_BY_ITSELF
        except RuntimeError:
            # It did not come up.
            return ENDED_BY_ITSELF
        finally:
            self._close()

    def _watch(self) -> None:
        watchdog = Watchdog(self._state)
        while self.sentinel.is_alive() and not (
            self._stop.requested or self._state.draining()
        ):
            self._wait()
            reason = watchdog.alarm()
            if reason:
                log.critical("cluster_killed", reason=reason)
                self._kill()

    def _drain(self) -> int:
        until = time.monotonic() + conf().grace_seconds + MARGIN_SECONDS
        self._state.drain()
        log.info("worker_drains", grace_seconds=conf().grace_seconds)
        # In a thread, because setting an event waits for its waiters, which may be
        # dead.
        threading.Thread(target=self.stop_event.set, daemon=True).start()
        while (
            self.sentinel.is_alive()
            and not self._stop.at_once
            and time.monotonic() < until
        ):
            self._wait()
        if self.sentinel.is_alive():
            self._kill()
            return KILLED
        return 0 if self.sentinel.exitcode == 0 else ENDED_BY_ITSELF

    def _wait(self) -> None:
        """Wait a moment for the cluster to end; this process is alive in the meantime."""
        self.sentinel.join(0.1)
        self._alive.touch()

    def _kill(self) -> None:
        """Kill the sentinel and all that it has forked, which only Linux would end with
        it.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.sentinel.pid, signal.SIGKILL)
        self.sentinel.kill()
        self.sentinel.join()

    def _close(self) -> None:
        self._state.close()
        try:
            require_answer(ANSWER_SECONDS)
            with short_statements(ANSWER_SECONDS):
                registration.leave(self._state)
        except Error as error:
            log.warning("worker_row_left_open", error=str(error).strip())
        connections.close_all()
