"""`python -m tests.soak.takeover`: kills busy workers, and measures how long their runs
stay without one.

From the moment of the SIGKILL to the moment when another worker has begun the run,
under the lease that installations have. Prints the distribution and whether 99 of 100
were within the lease and five seconds. Its database is its own.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.devtools.postgres import Postgres

BEYOND_LEASE = 5.0
BEAT = 1 / 3
"""Of the lease: how often a worker renews it. A kill falls anywhere between two beats.
"""


@dataclass(frozen=True, slots=True)
class Takeovers:
    """Seconds of each takeover, sorted, under a lease of so many seconds."""

    lease: float
    seconds: tuple[float, ...]

    @property
    def promised(self) -> float:
        return self.lease + BEYOND_LEASE

    def percentile(self, of_hundred: float) -> float:
        """The smallest figure that so many of a hundred do not exceed."""
        at = max(0, -(-len(self.seconds) * of_hundred // 100) - 1)
        return self.seconds[int(at)]

    def __str__(self) -> str:
        p50 = self.percentile(50)
        p99 = self.percentile(99)
        kept = "kept" if p99 <= self.promised else "BROKEN"
        return (
            f"takeover after SIGKILL, {len(self.seconds)} runs, lease {self.lease:g} s: "
            f"p50 {p50:.1f} s, p99 {p99:.1f} s, longest {self.seconds[-1]:.1f} s; "
            f"promised p99 <= {self.promised:g} s: {kept}"
        )


def measure(
    folder: Path, *, kills: int, lease: float, at_once: int = 4, seed: int = 8
) -> Takeovers:
    """Kill `at_once` busy workers `kills` times; each time another cluster has room for
    their runs.
    """
    chance = random.Random(seed)
    seconds = []
    for _ in range(kills):
        seconds += _round(folder, lease=lease, at_once=at_once, chance=chance)
    return Takeovers(lease, tuple(sorted(seconds)))


def _round(
    folder: Path, *, lease: float, at_once: int, chance: random.Random
) -> list[float]:
    from checkpoints.models import Run
    from tests.support.clusters import begun, cluster, send, slow
    from tests.support.processes import until

    with ExitStack() as stack:
        settings = {
            "COUNTERSIGN_LEASE_SECONDS": str(lease),
            "COUNTERSIGN_WORKERS": str(at_once),
        }
        victim = stack.enter_context(cluster(folder, **settings))
        runs = [slow(lease * 20) for _ in range(at_once)]
        for run in runs:
            begun(run)
        stack.enter_context(cluster(folder, **settings))
        time.sleep(chance.random() * lease * BEAT)
        before = dict(
            Run.objects.filter(id__in=[run.id for run in runs]).values_list(
                "id", "epoch"
            )
        )
        killed = time.monotonic()
        for pid in victim.alive():
            send(pid, signal.SIGKILL)
        collected: dict[object, float] = {}

        def all_taken() -> bool:
            for run_id, epoch in Run.objects.filter(id__in=before).values_list(
                "id", "epoch"
            ):
                # The claim raises the epoch, and the beginning does so once more.
                if run_id not in collected and epoch >= before[run_id] + 2:
                    collected[run_id] = time.monotonic() - killed
            return len(collected) == at_once

        until(all_taken, seconds=lease * 2 + 30, what="all runs to be taken over")
        Run.objects.filter(id__in=before).update(status="cancelled")
        return list(collected.values())


@contextmanager
def prepared(folder: Path, database: str) -> Iterator[None]:
    """A database with its tables. The server writes as carefully as one in production."""
    os.environ.pop("DATABASE_URL", None)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "COUNTERSIGN_DATA_DIR": str(folder),
    }
    folder.chmod(0o755)  # the server runs as another user where we are root
    server = Postgres(folder / "pg", keep=True) if database == "postgresql" else None
    if server:
        os.environ["DATABASE_URL"] = server.start()
    try:
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield
    finally:
        if server:
            server.stop()


def main(words: Sequence[str]) -> int:
    """Measure, print, and fail where the promise does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.takeover", description=__doc__
    )
    parser.add_argument(
        "--kills", type=int, default=25, help="how often; four runs each time"
    )
    parser.add_argument("--lease", type=float, default=15.0, help="seconds")
    parser.add_argument(
        "--database", choices=("sqlite", "postgresql"), default="postgresql"
    )
    chosen = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="countersign-") as name,
        prepared(Path(name), chosen.database),
    ):
        takeovers = measure(Path(name), kills=chosen.kills, lease=chosen.lease)
    print(f"{chosen.database}: {takeovers}", flush=True)
    return 0 if takeovers.percentile(99) <= takeovers.promised else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
