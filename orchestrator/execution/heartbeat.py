"""The heartbeat of one slice: a thread with its own connection that extends the lease
and writes progress.

It reports to the slice that the lease is lost, or that the run is to be cancelled. Most
slices are over before a first beat is due, and starting and ending a thread would cost
them as much as a statement. So the thread starts when there is progress to write, or
when a watch that all slices of a process share sees that the slice is still at work.
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
"""The shortest time between two reports of a node that reach the run's row."""
WATCH_SECONDS = 0.1
"""The longest time that a slice lasts without its thread: short beside any lease."""

STUCK = 75
"""Exit code of a worker process whose slice is stuck; a new process replaces it."""


class _Watch:
    """Starts the heartbeats of slices that last, in a thread that ends when no slice
    has begun for a while.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin without any slice. A forked child does so too: its parent's slices are
        not its own, and the lock may have been held when it was forked.
        """
        self._lock = threading.Lock()
        self._young: set[Heartbeat] = set()
        self._thread: threading.Thread | None = None

    def add(self, heart: "Heartbeat") -> None:
        """Start this heartbeat after a short delay, unless its slice has ended by then."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(
                    target=self._watch, name="heartbeats", daemon=True
                )
                thread.start()
                self._thread = thread
            # Last, because without a thread the slice does not begin, and nothing may
            # extend its lease.
            self._young.add(heart)

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                old = self._young
                self._young = set()
                if not old:
                    self._thread = None
                    return
            for heart in old:
                try:
                    heart.start()
                except RuntimeError:
                    # No thread can be started now. This heartbeat waits for the next
                    # turn, and the others do not wait for it.
                    with self._lock:
                        self._young.add(heart)


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.forget)


class Heartbeat:
    """Extends a lease while the `with` block runs. `lost` is set when the lease is
    known to be gone, `cancelling` when a request to cancel is seen. `beat` replaces the
    statement that extends a run's lease: it returns whether the lease is held.

    While `busy_until` (by the monotonic clock) is set, the slice's own thread does
    something that cannot be interrupted and should be over at once. If it is not over
    by then, the run is given back, and a worker process, which is of no further use,
    ends.
    """

    def __init__(
        self, lease: Lease | JobLease, *, beat: Callable[[], bool] | None = None
    ) -> None:
        self._lease = lease
        self._other_beat = beat
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
        """Start the thread, unless it is there or the block is over. Called from any
        thread.
        """
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(
                    target=self._beat, name=f"heartbeat-{self._lease.id}", daemon=True
                )
                thread.start()
                self._thread = thread

    def __exit__(self, *_: object) -> None:
        with self._starting:
            self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=1)

    def report(self, progress: dict[str, Any]) -> None:
        """Keep what a node reports until the next beat; the first report is a beat.
        Called from node threads.
        """
        first = self._progress is None and self._written == 0.0
        self._progress = progress
        if first:
            # If no thread can be started now, the watch tries again.
            with suppress(RuntimeError):
                self.start()
            self._wake.set()

    def _beat(self) -> None:
        # So one beat may fail, and the next one still comes in time.
        interval = conf().lease_seconds / 3
        beaten = self._begun
        while not self._stop.is_set():
            self._wake.wait(min(interval, PROGRESS_SECONDS))
            self._wake.clear()
            progress = self._progress
            self._progress = None
            if time.monotonic() > self.busy_until:
                self._let_go()
                break
            # A lease that is lost is not extended, but the slice may still get stuck.
            if self._stop.is_set() or self.lost.is_set():
                continue
            if progress is None and time.monotonic() - beaten < interval:
                continue
            beaten = time.monotonic()
            if progress is not None:
                self._written = beaten
            if not self._write(progress):
                connection.close()
        connection.close()

    def _let_go(self) -> None:
        log.critical("slice_stuck", id=str(self._lease.id))
        self.lost.set()
        # If it cannot be given back, the lease runs out.
        with suppress(Error):
            leases.give_back(self._lease.id, self._lease.epoch)
        # A slice that came back meanwhile has found its lease lost, and its process may
        # be at work on another run by now.
        stuck = time.monotonic() > self.busy_until
        if stuck and isinstance(self._lease, Lease) and self._lease.worker is not None:
            os._exit(STUCK)

    def _write(self, progress: dict[str, Any] | None) -> bool:
        try:
            if self._other_beat is None:
                pulse = leases.heartbeat(
                    self._lease.id,
                    self._lease.epoch,
                    progress=self._encrypted(progress),
                )
            elif self._other_beat():
                pulse = Pulse.HELD
            else:
                pulse = Pulse.LOST
        except (Error, CountersignError, TypeError, ValueError) as error:
            # The next beat tries again; if the lease runs out in the meantime, the
            # fence refuses the commit.
            log.warning("heartbeat_failed", id=str(self._lease.id), error=str(error))
            connection.close()
            # A report that no row can hold must not cost the lease: beat without it.
            return progress is None or self._write(None)
        if not pulse:
            self.lost.set()
        elif pulse == Pulse.CANCELLING:
            self.cancelling.set()
        return bool(pulse)

    def _encrypted(self, progress: dict[str, Any] | None) -> bytes | None:
        """Return a report as the run's row stores it."""
        if progress is None or not isinstance(self._lease, Lease):
            return None
        row = Run(id=self._lease.id)
        packed = sealed_columns.pack_json(progress)
        return sealed_rows.encrypted(row, "progress", packed, self._lease.protection)
