"""Whose turn it is: runs and jobs are looked for in turns, so that many of the one never keep the other waiting.

Whoever claims has one of his own: the pusher, and a worker that goes on by itself. It asks no database.
"""

import time
from typing import TypeVar

JOBS_SECONDS = 1.0
"""Between two looks for jobs, unless one is rung for or the last look found some: most looks cost nothing more."""

Look = TypeVar("Look")


class RoundRobin:
    """In which order to look for runs and for jobs, and whether to look for jobs at all."""

    def __init__(self) -> None:
        self._jobs_at = 0.0
        self._jobs_first = False

    def next(self, runs: Look, jobs: Look) -> list[Look]:
        """The looks to make now, in this order."""
        if time.monotonic() < self._jobs_at:
            return [runs]
        order = [jobs, runs] if self._jobs_first else [runs, jobs]
        self._jobs_first = not self._jobs_first
        return order

    def jobs_seen(self, *, found: bool) -> None:
        """A look for jobs was made."""
        self._jobs_at = 0.0 if found else time.monotonic() + JOBS_SECONDS

    def jobs_notified(self) -> None:
        """Somebody said that a job is due."""
        self._jobs_at = 0.0
