"""Slots: the runs and jobs that a cluster may hold at once, counted in shared memory,
so that no death of a process makes the count drift.

They are made before the fork, and used by the pusher (claims, withdraws), by the
workers (take, leave) and by the sentinel (frees what dead processes held). A cell is
free, claimed for (run or job, epoch), or taken by a process.
"""

import ctypes
import fcntl
import os
import tempfile
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any
from uuid import UUID

from checkpoints.queue.queue import Claim

FREE = 0
CLAIMED = -1
"""States of a cell. Any other is the id of the process that has taken it."""


class _Cell(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint8 * 16),
        ("job", ctypes.c_int64),
        ("epoch", ctypes.c_int64),
        ("since", ctypes.c_double),
        # Written last, in one machine word: a process that dies before that has changed
        # nothing.
        ("state", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Unbegun:
    """A claim that was handed out and that no worker has begun, and the seconds since
    then.
    """

    claim: Claim
    seconds: float


class Slots:
    """The cells of one cluster."""

    def __init__(self, number: int) -> None:
        self._cells: Any = RawArray(_Cell, number)
        # A lock of the file system, because the system releases it when its holder is
        # killed; a semaphore would stay locked.
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115

    def __len__(self) -> int:
        return len(self._cells)

    def free(self) -> int:
        """Return how many runs and jobs may still be claimed."""
        # Without the lock: only the pusher claims, so the number can only grow in the
        # meantime.
        states = [cell.state for cell in self._cells]
        return states.count(FREE)

    def busy(self) -> int:
        """Return how many runs and jobs a process is working on."""
        return sum(cell.state > FREE for cell in self._cells)

    def unbegun(self) -> list[Unbegun]:
        """Return the leases that the pusher has handed out and must still renew."""
        now = time.monotonic()
        return [
            Unbegun(_claim(cell), now - cell.since)
            for cell in self._cells
            if cell.state == CLAIMED
        ]

    def claim(self, claim: Claim) -> None:
        """Put a claim into a free cell (the pusher). Raises `LookupError` if no cell is
        free.
        """
        with self._locked():
            for cell in self._cells:
                if cell.state == FREE:
                    cell.id[:] = list(claim.id.bytes)
                    cell.job = claim.job
                    cell.epoch = claim.epoch
                    cell.since = time.monotonic()
                    cell.state = CLAIMED
                    return
        raise LookupError("no such slot")

    def take(self, claim: Claim) -> bool:
        """Give the cell of a claim to this process (a worker). Return False if the
        claim was withdrawn.
        """
        return self._change(claim, CLAIMED, os.getpid())

    def own_number(self) -> int:
        """Return the number of the cell that this process has taken, from 0. Raises
        `ValueError` if it has taken none.
        """
        states = [cell.state for cell in self._cells]
        return states.index(os.getpid())

    def withdraw(self, claim: Claim) -> bool:
        """Free the cell of a claim (the pusher). Return False if a worker has begun
        it.
        """
        return self._change(claim, CLAIMED, FREE)

    def leave(self, claim: Claim) -> bool:
        """Free the cell that this process took. Return False if it took none."""
        return self._change(claim, os.getpid(), FREE)

    def free_all_but(self, alive: Container[int]) -> int:
        """Free the cells of processes that have ended (the sentinel, their parent).
        Return how many there were.
        """
        freed = 0
        with self._locked():
            for cell in self._cells:
                if cell.state > FREE and cell.state not in alive:
                    cell.state = FREE
                    freed += 1
        return freed

    def _change(self, claim: Claim, old_state: int, new_state: int) -> bool:
        """Change the state of the cell with a claim. Return False if there is none in
        the old state.
        """
        with self._locked():
            for cell in self._cells:
                if cell.state == old_state and _claim(cell) == claim:
                    cell.state = new_state
                    return True
        return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def _claim(cell: Any) -> Claim:
    return Claim(UUID(bytes=bytes(cell.id)), cell.epoch, bool(cell.job))
