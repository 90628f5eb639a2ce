"""`python -m bench [--steps N] [--postgres]`: what a superstep costs, as a ratio of the commit limit of the same
database.

Prints one JSON line per figure, then a table. Asserts its own results: every step counted once.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="supersteps per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", action="store_true", help="on a real PostgreSQL, started for the bench, fsync on")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cs-bench-") as folder:
        Path(folder).chmod(0o755)
        _on(Path(folder), given)


def _on(folder: Path, given: argparse.Namespace) -> None:
    os.environ |= {"COUNTERSIGN_DATA_DIR": str(folder), "COUNTERSIGN_DEBUG": "true", "COUNTERSIGN_LOG_LEVEL": "ERROR"}
    os.environ["DJANGO_SETTINGS_MODULE"] = "orchestrator.settings"
    os.environ.pop("DATABASE_URL", None)
    if not given.postgres:
        return _measure("sqlite", given)
    from orchestrator.devtools.postgres import Postgres

    server = Postgres(folder / "pg", keep=True)
    os.environ["DATABASE_URL"] = server.start()
    try:
        return _measure("postgresql", given)
    finally:
        server.stop()


def _measure(database: str, given: argparse.Namespace) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from bench import counting, limit, w1

    rounds = []
    for _ in range(given.rounds):
        commits = limit.commits_per_second(given.steps)
        steps = w1.supersteps_per_second(given.steps)
        rounds.append({"limit": commits, "steps": steps, "fraction": steps / commits})
        print(json.dumps({"workload": "W1", "database": database, **rounds[-1]}))
    counted = counting.per_superstep(given.steps)
    print(json.dumps({"workload": "W1", "database": database, **counted}))
    fraction = statistics.median(one["fraction"] for one in rounds)
    print(f"\nW1 on {database}: {fraction:.2f} of the commit limit (median of {given.rounds} rounds)")
    for name, value in counted.items():
        print(f"  {name:<28}{value:g}")


if __name__ == "__main__":
    main(sys.argv[1:])
