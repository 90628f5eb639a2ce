"""A process that commits supersteps all the while, beside what a test measures: how
long the longest of them took.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection

from tests.support.processes import ROOT, environment, until

TELLS = {"PGOPTIONS": "-c log_lock_waits=on -c deadlock_timeout=100ms"}
"""Let the server tell each wait of this process for a lock that lasts longer than this.
"""
STEPS = 500
"""Supersteps of one run; then the next run begins."""


class LiveCommits:
    """The moments at which the process went on behind a superstep, in seconds of the
    system's clock.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._before = file, _told_waits()

    def lock_waits(self) -> int:
        """Return how often it waited for a lock for more than 100 ms, as PostgreSQL
        tells in its log; 0 on SQLite.
        """
        return _told_waits() - self._before

    def moments(self) -> list[float]:
        """Return the moments written so far; the last line may not be complete yet."""
        return (
            [float(line) for line in self._file.read_text().split("\n")[:-1]]
            if self._file.exists()
            else []
        )

    def longest(self, begin: float, end: float) -> tuple[float, int]:
        """The longest superstep, with its commit, between two moments of
        `time.monotonic`: seconds, and how many.
        """
        moments = [moment for moment in self.moments() if begin <= moment <= end]
        return max(
            (b - a for a, b in zip(moments, moments[1:], strict=False)), default=0.0
        ), len(moments)


def _told_waits() -> int:
    log = Path(str(connection.settings_dict["HOST"])) / "log"
    log_text = (
        log.read_text(errors="replace") if connection.vendor == "postgresql" else ""
    )
    return log_text.count("still waiting for")


@contextmanager
def live_commits(folder: Path) -> Iterator[LiveCommits]:
    """Open a block in which another process commits supersteps of another graph in the
    test's database.
    """
    file = folder / "moments"
    log = folder / "live.log"
    command = [sys.executable, "-m", "tests.support.live_commits", str(file)]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(**TELLS), stdout=out, stderr=out
        )
        try:
            live = LiveCommits(file)
            until(
                lambda: len(live.moments()) > STEPS // 10,
                what=f"the first commits, see {log}",
            )
            yield live
        finally:
            process.terminate()
            process.wait(15)


def commit_all_the_while(file: Path) -> None:
    """One run after the other, until the process is ended."""
    import django

    django.setup()
    from orchestrator import runs
    from orchestrator.engine import END, START
    from tests.support.small_graphs import graph, registered

    with file.open("a", buffering=1) as moments:

        def step(state: Any, ctx: Any) -> dict[str, Any]:
            moments.write(f"{time.monotonic():.6f}\n")
            return {"total": state.total + 1}

        flow = graph("live", max_supersteps=STEPS + 9)
        flow.node("step")(step)
        flow.edge(START, "step")
        flow.branch(
            "step",
            lambda state: "on" if state.total < STEPS else "off",
            {"on": "step", "off": END},
        )
        registered(flow)
        while True:
            runs.advance(runs.start("live", {}).id)


if __name__ == "__main__":
    commit_all_the_while(Path(sys.argv[1]))
