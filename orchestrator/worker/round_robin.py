"""Turns of runs and jobs, so that many of one kind never keep the other waiting.

Each claimant has its own turns: the pusher, and a worker that claims by itself. Needs
no database.
"""

import time
from typing import TypeVar

JOBS_SECONDS = 1.0
"""The time between two looks for jobs, unless there was a notification or the last look
found some. So most looks at the queue cost one statement.
"""

Look = TypeVar("Look")


class RoundRobin:
    """The order in which to look for runs and for jobs, and whether to look for jobs at
    all.
    """

    def __init__(self) -> None:
        self._jobs_at = 0.0
        self._jobs_first = False

    def next(self, runs: Look, jobs: Look) -> list[Look]:
        """Return the looks to make now, in this order."""
        if time.monotonic() < self._jobs_at:
            return [runs]
        # The first look may take all free slots, so the order alternates.
        order = [jobs, runs] if self._jobs_first else [runs, jobs]
        self._jobs_first = not self._jobs_first
        return order

    def jobs_seen(self, *, any_due: bool) -> None:
        """Note that a look for jobs was made."""
        self._jobs_at = 0.0 if any_due else time.monotonic() + JOBS_SECONDS

    def jobs_notified(self) -> None:
        """Note that there was a notification that a job is due."""
        self._jobs_at = 0.0
