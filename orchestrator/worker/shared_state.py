"""The board: what the processes of one cluster know of each other. Shared memory and a bell, made before the fork.

The broker makes it; pusher, workers, sentinel and the main process read it. No locks that a killed process could keep.
"""

import contextlib
import ctypes
import select
import socket
import time
from multiprocessing.sharedctypes import RawValue
from typing import Any, Protocol
from uuid import UUID

from checkpoints.core.ids import uuid7
from orchestrator.worker.slots import Slots


class Readable(Protocol):
    """Something with a file descriptor that `select` can wait for."""

    def fileno(self) -> int: ...


class SharedState:
    """Of one cluster: its id, its slots, whether it drains, and when its parts were last seen alive."""

    def __init__(self, slots: int) -> None:
        self.worker: UUID = uuid7()
        self.slots = Slots(slots)
        self._draining: Any = RawValue(ctypes.c_byte, 0)
        self._pusher: Any = RawValue(ctypes.c_double, time.monotonic())
        self._sentinel: Any = RawValue(ctypes.c_double, time.monotonic())
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def draining(self) -> bool:
        """Whether runs in hand are to be given back and no new ones taken."""
        return bool(self._draining.value)

    def drain(self) -> None:
        """From now on, for good."""
        self._draining.value = 1

    def pusher_is_well(self) -> None:
        """Said by the pusher after each round that went well."""
        self._pusher.value = time.monotonic()

    def sentinel_is_well(self) -> None:
        """Said by the sentinel in each cycle of its guard."""
        self._sentinel.value = time.monotonic()

    def pusher_silent(self) -> float:
        """Seconds since the pusher's last good round."""
        return time.monotonic() - float(self._pusher.value)

    def sentinel_silent(self) -> float:
        """Seconds since the sentinel's last cycle."""
        return time.monotonic() - float(self._sentinel.value)

    def ring(self) -> None:
        """Tell the pusher that a slot is free."""
        with contextlib.suppress(BlockingIOError):  # full: it has enough to wake up for
            self._wake_sender.send(b"!")

    def wait(self, seconds: float, *others: Readable) -> None:
        """The pusher's rest: until the bell rings, one of `others` can be read, or the time is over."""
        ready, _, _ = select.select([self._wake_receiver, *others], [], [], seconds)
        if self._wake_receiver in ready:
            self._wake_receiver.recv(4096)

    def close(self) -> None:
        """Give the bell back. Only for the process that made the board, when its cluster is gone."""
        self._wake_receiver.close()
        self._wake_sender.close()


_installed: SharedState | None = None


def install_state(state: SharedState) -> None:
    """Make it the board of this process and of those that are forked from it."""
    global _installed
    _installed = state


def installed_state() -> SharedState:
    """The board of this process. Raises `RuntimeError` outside a cluster."""
    if _installed is None:
        raise RuntimeError("no cluster was started here: run `manage.py worker`")
    return _installed
