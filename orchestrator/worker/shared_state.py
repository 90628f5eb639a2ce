"""The state that the processes of one cluster share: memory, and a pair of sockets with
which they wake the pusher, both made before the fork.

The broker makes it; pusher, workers, sentinel and the main process read it. It has no
locks that a killed process could keep.
"""

import contextlib
import ctypes
import select
import socket
import time
from multiprocessing.sharedctypes import RawValue
from typing import Any, Protocol
from uuid import UUID

from checkpoints.conf import conf
from checkpoints.core import work_sums
from checkpoints.core.ids import uuid7
from checkpoints.core.work_sums import WorkSums
from orchestrator.worker.slots import Slots


class Readable(Protocol):
    """Something with a file descriptor that `select` can wait for."""

    def fileno(self) -> int: ...


class SharedState:
    """The state of one cluster: its id, its slots, whether it drains, and when its
    parts were last seen alive.
    """

    def __init__(self, slots: int) -> None:
        self.worker: UUID = uuid7()
        self.slots = Slots(slots)
        self.sums: WorkSums | None = None
        if conf().metrics_token:
            self.sums = WorkSums(slots)
        self._draining: Any = RawValue(ctypes.c_byte, 0)
        # The monotonic clock is one for all processes of a host.
        self._pusher: Any = RawValue(ctypes.c_double, time.monotonic())
        self._sentinel: Any = RawValue(ctypes.c_double, time.monotonic())
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def draining(self) -> bool:
        """Return whether to give back the runs in hand and take no new ones."""
        return bool(self._draining.value)

    def drain(self) -> None:
        """Begin to drain; that cannot be undone."""
        self._draining.value = 1

    def pusher_is_well(self) -> None:
        """Note that the pusher has completed a round."""
        self._pusher.value = time.monotonic()

    def sentinel_is_well(self) -> None:
        """Note that the sentinel has completed a cycle of its guard."""
        self._sentinel.value = time.monotonic()

    def pusher_silent(self) -> float:
        """Return the seconds since the pusher's last complete round."""
        return time.monotonic() - float(self._pusher.value)

    def sentinel_silent(self) -> float:
        """Return the seconds since the sentinel's last cycle."""
        return time.monotonic() - float(self._sentinel.value)

    def ring(self) -> None:
        """Wake the pusher, because a slot is free."""
        # If the buffer is full, the pusher has enough to wake up for.
        with contextlib.suppress(BlockingIOError):
            self._wake_sender.send(b"!")

    def wait(self, seconds: float, *others: Readable) -> bool:
        """Wait (the pusher) until `ring` is called, one of `others` can be read, or the
        time is over. Return whether it rang.
        """
        ready, _, _ = select.select([self._wake_receiver, *others], [], [], seconds)
        rang = self._wake_receiver in ready
        if rang:
            # However often it rang, the pusher looks once.
            self._wake_receiver.recv(4096)
        return rang

    def close(self) -> None:
        """Close the sockets. Only the process that made them calls it, when its cluster
        has ended.
        """
        self._wake_receiver.close()
        self._wake_sender.close()


_installed: SharedState | None = None


def install_state(state: SharedState) -> None:
    """Make it the state of this process and of those that are forked from it."""
    global _installed
    _installed = state
    work_sums.install(state.sums)


def installed_state() -> SharedState:
    """Return the state of this process. Raises `RuntimeError` outside a cluster."""
    if _installed is None:
        raise RuntimeError("no cluster was started here: run `manage.py worker`")
    return _installed
