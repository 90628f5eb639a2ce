"""Being asked to stop, and pauses between the lives of what is kept running. Shared by `worker` and `up`."""

import signal
import time
from types import FrameType

SECOND_SIGNAL_SECONDS = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
GOOD_LIFE_SECONDS = 60.0
"""What lived this long was well: the next pause is the first again."""


class StopRequest:
    """The signals that asked this process to stop."""

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self.at_once = False

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Count a signal. A second one is an order to stop at once, unless it is the echo of the first."""
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now - self._asked_at > SECOND_SIGNAL_SECONDS:
            self.at_once = True

    @property
    def asked(self) -> bool:
        """Whether there was one."""
        return self._asked_at is not None

    def pause(self, seconds: float) -> bool:
        """Rest; ends early, with True, when asked to stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.asked:
            time.sleep(0.05)
        return self.asked


class Pauses:
    """Growing pauses between the lives of a process, so that one that cannot live does not spin."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def after(self, life: float) -> float:
        """Seconds to wait before the next start, after a life of so many seconds."""
        if life > GOOD_LIFE_SECONDS:
            self._next = FIRST_PAUSE
        pause, self._next = self._next, min(self._next * 2, LONGEST_PAUSE)
        return pause
