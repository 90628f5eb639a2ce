"""`python -m bench`: what durable work costs here, as ratios of the commit limit of the
same database in one run.

Prints a line of JSON per figure, then one table of the targets. Fails where a workload
finds its own result wrong, never because a target was missed.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.bench import Bench
from bench.places import SERVERS
from bench.results import Results
from bench.table import table, unsteady

WORKLOADS = tuple(f"W{number}" for number in range(1, 13))
PEERS = {
    "langgraph": ("langgraph.checkpoint.sqlite", "langgraph.checkpoint.postgres"),
    "dbos": ("dbos",),
}
"""Peer -> the modules without which it cannot take part."""


def main(arguments: Sequence[str]) -> None:
    options = _options().parse_args(arguments)
    peers = _present() if options.peers else ()
    results = Results()
    began = os.getloadavg()[0]
    databases = list(SERVERS) if options.database == "both" else [options.database]
    for database in databases:
        with tempfile.TemporaryDirectory(prefix="cs-bench-") as folder:
            Path(folder).chmod(
                0o755
            )  # the server runs as another user where we are root
            _measure(database, Path(folder), options, peers, results)
    load = (
        f"The machine's load was {began:.1f} when the bench began,"
        f" {os.getloadavg()[0]:.1f} at its end."
    )
    print(
        "",
        table(results, markdown=options.markdown),
        load,
        *unsteady(results),
        sep="\n",
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        type=_workloads,
        default=WORKLOADS,
        metavar="W1,W5",
        help="these workloads only",
    )
    parser.add_argument("--database", choices=[*SERVERS, "both"], default="both")
    parser.add_argument(
        "--rounds", type=int, help="rounds of each figure; default 5, with --short 3"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="less of everything: minutes, and figures that vary more",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="the table as Markdown, for docs/performance.md",
    )
    parser.add_argument(
        "--peers",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="langgraph and dbos, too",
    )
    parser.add_argument(
        "--delay-commits-ms",
        type=float,
        default=1.0,
        help="for the slow W1 on PostgreSQL; 0: not at all",
    )
    parser.add_argument(
        "--beside",
        type=int,
        default=0,
        metavar="RUNS",
        help="runs of others in W8; default 200,000, with --short 2,000",
    )
    return parser


def _workloads(text: str) -> tuple[str, ...]:
    names = tuple(word.strip().upper() for word in text.split(","))
    if unknown := set(names) - set(WORKLOADS):
        raise argparse.ArgumentTypeError(f"no workload {', '.join(sorted(unknown))}")
    return names


def _present() -> tuple[str, ...]:
    """Return the peers that are installed, and print which are not."""
    missing = [
        peer for peer, modules in PEERS.items() if not all(map(_importable, modules))
    ]
    if missing:
        print(
            f"Not installed, so left out: {', '.join(missing)} (the extra `bench`).",
            file=sys.stderr,
        )
    return tuple(peer for peer in PEERS if peer not in missing)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _measure(
    database: str,
    folder: Path,
    options: argparse.Namespace,
    peers: tuple[str, ...],
    results: Results,
) -> None:
    server = SERVERS[database](folder)
    server.start()
    rounds = options.rounds or (3 if options.short else 5)
    bench = Bench(
        server,
        results,
        rounds,
        options.short,
        peers,
        options.delay_commits_ms,
        options.beside,
    )
    try:
        for name in options.only:
            import_module(f"bench.workloads.{name.lower()}").run(bench)
    finally:
        server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
