"""The commit limit of a database: one prepared insert of 1 KB a commit, by the driver
alone. Nothing durable that writes a step at a time can beat it. Measured right before
and after each figure that is compared with it.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from bench.bodies import KILOBYTES
from bench.places import Place

T = TypeVar("T")
ROUND = 1_000
"""Commits of a round of warming up. SQLite's log, for one, gets its size only then."""
STEADY = 0.1
"""By how much of it two rounds of a warm limit may differ."""
MOST_ROUNDS = 20


class Limit:
    """Measures on a connection and in a database of its own, on the same server."""

    def __init__(self, place: Place) -> None:
        self._link = place.connect()
        self._sqlite = place.vendor == "sqlite"
        mark = "?" if self._sqlite else "%s"
        self._query = f"INSERT INTO limit_rows VALUES ({mark}, {mark})"
        self._prepare = {} if self._sqlite else {"prepare": True}
        self._link.execute("CREATE TABLE limit_rows (number integer, body text)")
        self._written = 0
        self._warm_up()

    def _warm_up(self) -> None:
        """Commit until the rate is steady, or the machine shows that it will not be."""
        before = self.commits_per_second(ROUND)
        for _ in range(MOST_ROUNDS):
            rate = self.commits_per_second(ROUND)
            if abs(rate - before) <= STEADY * before:
                return
            before = rate

    def commits_per_second(self, number: int) -> float:
        """Return the rate over `number` commits."""
        begun = time.perf_counter()
        for n in range(number):
            self._commit(n)
        took = time.perf_counter() - begun
        self._written += number
        with closing(self._link.execute("SELECT count(*) FROM limit_rows")) as rows:
            assert rows.fetchone()[0] == self._written, "the limit lost commits"
        return number / took

    def fastest_ms(self, number: int) -> float:
        """Return the time of the shortest of `number` commits: what none of them can
        beat, however busy the machine is.
        """
        took = []
        for n in range(number):
            begun = time.perf_counter()
            self._commit(n)
            took.append(1000 * (time.perf_counter() - begun))
        self._written += number
        return min(took)

    def around(
        self, act: Callable[..., T], *arguments: Any, commits: int = 250
    ) -> tuple[T, float]:
        """Return what `act` gives, and the limit as it was around it: the mean of
        before and after.
        """
        before = self.commits_per_second(commits)
        done = act(*arguments)
        return done, (before + self.commits_per_second(commits)) / 2

    def tell(self) -> None:
        """Have the server's statistics hold all that was committed here, before
        anything else is counted by them.
        """
        if not self._sqlite:
            self._link.execute("SELECT pg_stat_force_next_flush()")

    def _commit(self, n: int) -> None:
        self._link.execute(self._query, (n, KILOBYTES[n % 64]), **self._prepare)

    def close(self) -> None:
        self._link.close()
