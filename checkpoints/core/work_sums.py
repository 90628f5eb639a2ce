"""Sums of what the worker processes of one cluster did, in memory that they share.

Each slot has a row of numbers, to which only the process in that slot adds, so that no
number needs a lock. The pusher writes the totals into the row of the cluster with each
heartbeat. Where nobody watches, nothing is installed and nothing is added.
"""

import ctypes
from bisect import bisect_left
from multiprocessing.sharedctypes import RawArray
from typing import Any

COUNTERS = (
    "runs_claimed",
    "jobs_claimed",
    "leases_lost",
    "slices_failed",
    "runs_failed",
    "runs_unknown",
    "runs_incompatible",
    "runs_tampered",
    "jobs_failed",
    "checkpoints",
    "checkpoint_bytes",
    "webhooks_delivered",
    "webhooks_failed",
    "mails_sent",
    "mails_failed",
)
"""The names of the numbers that only grow."""
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of superstep times, in seconds; a last one has none."""

_PLACES = {name: place for place, name in enumerate(COUNTERS)}
_SECONDS = len(COUNTERS)
_BUCKETS = _SECONDS + 1
_WIDTH = _BUCKETS + len(BOUNDS) + 1


class WorkSums:
    """The sums of one cluster: a row for each slot, made before the fork."""

    def __init__(self, slots: int) -> None:
        self._numbers: Any = RawArray(ctypes.c_double, slots * _WIDTH)
        self._start = 0

    def use_row(self, slot: int) -> None:
        """Make this process add to the row of its slot from now on."""
        self._start = slot * _WIDTH

    def add(self, name: str, amount: int = 1) -> None:
        """Add to one of `COUNTERS`."""
        self._numbers[self._start + _PLACES[name]] += amount

    def add_superstep(self, seconds: float) -> None:
        """Add a superstep whose tasks took this long."""
        self._numbers[self._start + _SECONDS] += seconds
        bucket = bisect_left(BOUNDS, seconds)
        self._numbers[self._start + _BUCKETS + bucket] += 1

    def totals(self) -> dict[str, Any]:
        """Return the sums of all slots as JSON: each of `COUNTERS`, `superstep_seconds`,
        and `superstep_buckets`, the numbers of supersteps by bucket, with their upper
        bounds in `superstep_bounds`.
        """
        numbers = list(self._numbers)
        sums = [sum(numbers[place::_WIDTH]) for place in range(_WIDTH)]
        totals: dict[str, Any] = {}
        for name, place in _PLACES.items():
            totals[name] = int(sums[place])
        totals["superstep_seconds"] = round(sums[_SECONDS], 6)
        totals["superstep_bounds"] = list(BOUNDS)
        totals["superstep_buckets"] = list(map(int, sums[_BUCKETS:]))
        return totals


installed: WorkSums | None = None
"""The sums to which this process adds; None where nobody watches. What is on the way of
each superstep looks at it before it calls anything.
"""


def install(sums: WorkSums | None) -> None:
    """Make these the sums of this process and of those that are forked from it."""
    global installed
    installed = sums


def count(name: str) -> None:
    """Add 1 to one of `COUNTERS` if anybody watches."""
    if installed is not None:
        installed.add(name)
