"""How many sockets and streams one person may have open in this process, and how often one socket may speak."""

import time
from collections import Counter
from typing import Any

_open: Counter[Any] = Counter()
"""Person -> his open sockets."""


def take_socket(person: Any, *, most: int) -> bool:
    """Count one more socket of the person, unless he has `most` already."""
    if _open[person] >= most:
        return False
    _open[person] += 1
    return True


def open_sockets(person: Any) -> int:
    """How many the person has open."""
    return _open.get(person, 0)


def return_socket(person: Any) -> None:
    """One socket of the person is closed."""
    _open[person] -= 1
    if _open[person] <= 0:
        del _open[person]


class Rate:
    """So many messages a second; those that were not sent may be made up for within one second."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self.most = max(1.0, per_second)
        self.left = self.most
        self.at = time.monotonic()

    def allows_one(self) -> bool:
        """Whether one more message is within the limit, which it then counts against."""
        now = time.monotonic()
        self.left = min(self.most, self.left + (now - self.at) * self.per_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True
