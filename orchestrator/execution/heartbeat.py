"""The heartbeat of one slice: a thread with its own connection that lengthens the lease and writes progress.

It tells the slice what it finds: that the lease is lost, or that somebody wants the run to be cancelled. Most slices
are over before a first beat is due, and to start and end a thread costs them as much as a statement; so it starts when
there is something to report, or when the slice is seen at work by a watch that all slices of a process share.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from django.db import Error, connection

from checkpoints.conf import conf
from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.queue.jobs import JobLease
from checkpoints.queue.leases import Lease, Pulse
from checkpoints.sealing import sealed_columns, sealed_rows
from orchestrator.engine.errors import CountersignError

log = structlog.get_logger(__name__)

PROGRESS_SECONDS = 1.0
"""At most so often a node's report reaches the run's row."""
WATCH_SECONDS = 0.1
"""How long a slice may be without its thread: short beside any lease."""

STUCK = 75
"""Exit code of a worker's process whose slice is stuck; its place is taken by a new one."""


class _Watch:
    """Starts the heartbeats of slices that last. A thread that ends when no slice has begun for a while."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin without any slice; in a forked child too, for its parent's are not his to keep, and the lock may have
        been held.
        """
        self._lock = threading.Lock()
        self._young: set[Heartbeat] = set()
        self._thread: threading.Thread | None = None

    def add(self, heart: "Heartbeat") -> None:
        """See to it that it starts, unless it is over by then."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._watch, name="heartbeats", daemon=True)
                thread.start()
                self._thread = thread
            # Last: where there is no thread the slice does not begin, and nobody may keep its lease.
            self._young.add(heart)

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                old, self._young = self._young, set()
                if not old:
                    self._thread = None
                    return
            for heart in old:
                try:
                    heart.start()
                except RuntimeError:
                    # No thread to be had now: this one stays among the young, the others are not kept waiting.
                    with self._lock:
                        self._young.add(heart)


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.forget)


class Heartbeat:
    """Beats while the `with` block runs. `lost` is set when the lease is known to be gone, `cancelling` when a request
    to cancel is seen. `beat` replaces a run's heartbeat by another: it gives whether the lease is held.

    While `busy_until` (by the monotonic clock) is set, the slice itself does what nobody can interrupt and what should
    be over at once. Where it is not over by then, the run is given back; and a worker's process, which is of no use any
    more, ends.
    """

    def __init__(self, lease: Lease | JobLease, *, beat: Callable[[], bool] | None = None) -> None:
        self._lease = lease
        self._beats = beat
        self.cancelling = threading.Event()
        self._stop = threading.Event()
        self.lost = threading.Event()
        self._wake = threading.Event()
        self._progress: dict[str, Any] | None = None
        self._written = 0.0
        self._begun = time.monotonic()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.busy_until = math.inf

    def __enter__(self) -> "Heartbeat":
        _watch.add(self)
        return self

    def start(self) -> None:
        """Start the thread, if it is not there and the block still runs. Called from any thread."""
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._beat, name=f"heartbeat-{self._lease.id}", daemon=True)
                thread.start()
                self._thread = thread

    def __exit__(self, *_: object) -> None:
        with self._starting:
            self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=1)

    def report(self, progress: dict[str, Any]) -> None:
        """Keep what a node reports until the next beat; the first report is a beat. Called from node threads."""
        first = self._progress is None and self._written == 0.0
        self._progress = progress
        if first:
            with suppress(RuntimeError):  # the watch tries again
                self.start()
            self._wake.set()

    def _beat(self) -> None:
        interval = conf().lease_seconds / 3
        beaten = self._begun
        while not self._stop.is_set():
            self._wake.wait(min(interval, PROGRESS_SECONDS))
            self._wake.clear()
            progress, self._progress = self._progress, None
            if time.monotonic() > self.busy_until:
                self._let_go()
                break
            # A lease that is lost is not lengthened; but the slice may be stuck all the same.
            idle = self.lost.is_set() or (progress is None and time.monotonic() - beaten < interval)
            if self._stop.is_set() or idle:
                continue
            beaten = time.monotonic()
            self._written = beaten if progress is not None else self._written
            if not self._write(progress):
                connection.close()
        connection.close()

    def _let_go(self) -> None:
        log.critical("slice_stuck", id=str(self._lease.id))
        self.lost.set()
        with suppress(Error):  # else the lease runs out
            leases.give_back(self._lease.id, self._lease.epoch)
        # Who came back meanwhile has found his lease lost, and may be at work on another run by now.
        stuck = time.monotonic() > self.busy_until
        if stuck and isinstance(self._lease, Lease) and self._lease.worker is not None:
            os._exit(STUCK)

    def _write(self, progress: dict[str, Any] | None) -> bool:
        try:
            if self._beats is None:
                pulse = leases.heartbeat(self._lease.id, self._lease.epoch, progress=self._kept(progress))
            else:
                pulse = Pulse.HELD if self._beats() else Pulse.LOST
        except (Error, CountersignError, TypeError, ValueError) as error:
            # The next beat tries again; if the lease runs out meanwhile, the fence refuses the commit.
            log.warning("heartbeat_failed", id=str(self._lease.id), error=str(error))
            connection.close()
            # A report that no row can hold must not cost the lease.
            return progress is None or self._write(None)
        if not pulse:
            self.lost.set()
        elif pulse == Pulse.CANCELLING:
            self.cancelling.set()
        return bool(pulse)

    def _kept(self, progress: dict[str, Any] | None) -> bytes | None:
        """A report as the run's row keeps it."""
        if progress is None or not isinstance(self._lease, Lease):
            return None
        row, packed = Run(id=self._lease.id), sealed_columns.pack_json(progress)
        return sealed_rows.encrypted(row, "progress", packed, self._lease.protection)
