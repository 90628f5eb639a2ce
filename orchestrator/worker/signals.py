"""Requests to stop, and the pauses between restarts of a process that is kept running.
Shared by `worker` and `up`.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType

SECOND_SIGNAL_SECONDS = 1.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
GOOD_LIFE_SECONDS = 60.0
"""Seconds after which a process counts as healthy, so that the next pause is short
again.
"""


class StopRequest:
    """The signals that request this process to stop."""

    def __init__(self) -> None:
        self._requested_at: float | None = None
        self.at_once = False

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Count a signal. A second one is an order to stop at once, unless it is the
        echo of the first.
        """
        now = time.monotonic()
        if self._requested_at is None:
            self._requested_at = now
        elif now - self._requested_at > SECOND_SIGNAL_SECONDS:
            self.at_once = True

    @property
    def requested(self) -> bool:
        """Return whether the process has to stop."""
        return self._requested_at is not None

    def pause(self, seconds: float, meanwhile: Callable[[], None]) -> bool:
        """Sleep for this many seconds, or until a stop is requested, and call
        `meanwhile` again and again. Returns whether it was.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.requested:
            # In short sleeps, because a handler that only notes its signal ends no long
            # one.
            time.sleep(0.05)
            meanwhile()
        return self.requested


class Pauses:
    """Growing pauses between the restarts of a process, so that one that always fails
    does not spin.
    """

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def after(self, life: float) -> float:
        """Return the seconds to wait before the next start, after the process has lived
        for `life` seconds.
        """
        if life > GOOD_LIFE_SECONDS:
            self._next = FIRST_PAUSE
        pause = self._next
        self._next = min(self._next * 2, LONGEST_PAUSE)
        return pause
