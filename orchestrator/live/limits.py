"""Limits on the sockets and streams that one person may have open in this process, and
on the messages of one socket.
"""

import time
from collections import Counter
from typing import Any

# Changed in the event loop alone, so it needs no lock.
_open: Counter[Any] = Counter()
"""Person -> number of open sockets and streams."""


def take_socket(person: Any, *, most: int) -> bool:
    """Count one more socket of the person, and return whether `most` allows it."""
    if _open[person] >= most:
        return False
    _open[person] += 1
    return True


def open_sockets(person: Any) -> int:
    """Return how many sockets and streams the person has open."""
    return _open.get(person, 0)


def all_open_sockets() -> int:
    """Return how many sockets and streams are open in this process."""
    return sum(_open.values())


def return_socket(person: Any) -> None:
    """Count a socket of the person as closed."""
    _open[person] -= 1
    if _open[person] <= 0:
        del _open[person]


class Rate:
    """A limit of messages a second. Unused messages may be sent later, but at most those
    of one second.
    """

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        # With less than one a second, one message must still be allowed.
        self.most = max(1.0, per_second)
        self.left = self.most
        self.at = time.monotonic()

    def allows_one(self) -> bool:
        """Count one more message, and return whether it is within the limit."""
        now = time.monotonic()
        self.left = min(self.most, self.left + (now - self.at) * self.per_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True
