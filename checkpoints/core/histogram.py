"""A histogram of durations in this process, for whoever scrapes it. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from threading import Lock


class Histogram:
    """How many durations fell into each bucket, and their sum in seconds. Several
    threads may add at once.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._lock = Lock()
        self._buckets = [0] * (len(self.bounds) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one duration."""
        bucket = bisect_left(self.bounds, seconds)
        with self._lock:
            self._buckets[bucket] += 1
            self._seconds += seconds

    def read(self) -> tuple[list[int], float]:
        """Return the number of durations by bucket, and their sum."""
        with self._lock:
            return list(self._buckets), self._seconds
