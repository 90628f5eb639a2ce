"""Slots: how many runs and jobs a cluster may hold at once, counted where no death can make the count drift.

Made before the fork, used by the pusher (claims, withdraws), by the workers (take, leave) and by the sentinel (frees
what the dead held). A cell is free, claimed for (run or job, epoch), or taken by a process.
"""

import ctypes
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any
from uuid import UUID

from checkpoints.queue.queue import Claim

FREE, CLAIMED = 0, -1
"""States of a cell. Any other is the id of the process that has taken it."""


class _Cell(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint8 * 16),
        ("job", ctypes.c_int64),
        ("epoch", ctypes.c_int64),
        ("since", ctypes.c_double),
        # Written last, in one machine word: who dies before it has changed nothing.
        ("state", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Unbegun:
    """A claim that was handed out and that no worker has begun, and how many seconds ago that was."""

    claim: Claim
    seconds: float


class Slots:
    """The cells of one cluster."""

    def __init__(self, number: int) -> None:
        self._cells: Any = RawArray(_Cell, number)
        # A lock of the file system: the system gives it back when its holder is killed, which a semaphore does not.
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115

    def __len__(self) -> int:
        return len(self._cells)

    def free(self) -> int:
        """How many runs and jobs may still be claimed."""
        return sum(cell.state == FREE for cell in self._cells)

    def busy(self) -> int:
        """How many are in the hands of a process."""
        return sum(cell.state > FREE for cell in self._cells)

    def unbegun(self) -> list[Unbegun]:
        """What the pusher has handed out and must still renew."""
        now = time.monotonic()
        return [Unbegun(_claim(cell), now - cell.since) for cell in self._cells if cell.state == CLAIMED]

    def claim(self, claim: Claim) -> None:
        """Put a claim into a free cell (the pusher). Raises `LookupError` where it claimed more than `free()`."""
        with self._locked():
            cell = self._find(lambda cell: cell.state == FREE)
            cell.id[:] = list(claim.id.bytes)
            cell.job, cell.epoch, cell.since = claim.job, claim.epoch, time.monotonic()
            cell.state = CLAIMED

    def take(self, claim: Claim) -> bool:
        """Make the cell of a claim one's own (the worker). False: it was withdrawn, the claim is nobody's any more."""
        return self._change(claim, CLAIMED, os.getpid())

    def withdraw(self, claim: Claim) -> bool:
        """Free the cell of a claim (the pusher). False: a worker has begun it."""
        return self._change(claim, CLAIMED, FREE)

    def leave(self, claim: Claim) -> bool:
        """Free the cell that this process took. False: it was not ours."""
        return self._change(claim, os.getpid(), FREE)

    def free_all_but(self, alive: Container[int]) -> int:
        """Free the cells of processes that are no more (the sentinel, their parent). Gives how many there were."""
        with self._locked():
            lost = [cell for cell in self._cells if cell.state > FREE and cell.state not in alive]
            for cell in lost:
                cell.state = FREE
            return len(lost)

    def _change(self, claim: Claim, state: int, to: int) -> bool:
        with self._locked():
            try:
                cell = self._find(lambda cell: cell.state == state and _claim(cell) == claim)
            except LookupError:
                return False
            cell.state = to
            return True

    def _find(self, wanted: Callable[[Any], bool]) -> Any:
        for cell in self._cells:
            if wanted(cell):
                return cell
        raise LookupError("no such slot")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def _claim(cell: Any) -> Claim:
    return Claim(UUID(bytes=bytes(cell.id)), cell.epoch, bool(cell.job))
