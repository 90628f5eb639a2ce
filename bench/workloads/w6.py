"""W6: pause for a person, decide, go on; the node's code runs in an idle worker, which
is another process. Rows 13 and
14. Peers decide and go on in one process.
"""

import random
import time
from contextlib import nullcontext

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.counting import durable
from bench.workloads.workers import worker


def run(bench: Bench) -> None:
    """Return how long after the last decision is committed the next node's code begins;
    and commits of a whole cycle.
    """
    for who in (OURS, *bench.peers):
        _cycles(bench, who)


def _cycles(bench: Bench, who: str) -> None:
    place = bench.place(who, "w6")
    log = str(place.folder / "proposals")
    dice = random.Random(6)
    cycles = bench.size(20, 8) * bench.rounds if who == OURS else bench.size(20, 8)
    with (
        worker(place, slots=2) if who == OURS else nullcontext(),
        Contender(who, place) as contender,
    ):
        if who == OURS:
            contender.ask("workers_ready")
        run = contender.ask("w6_start", log=log)["run"]
        commits = durable.commits(place)
        for number in range(1, cycles + 1):
            # Until the worker is idle again, and at no fixed distance to its polls.
            time.sleep(0.1 + 0.1 * dice.random())
            before = commits.count()
            facts = contender.ask("w6_cycle", run=run, log=log, number=number)
            # The worker's own heartbeat falls into some cycles; the median is that of a
            # cycle without it.
            bench.add(
                "W6", who, round=number, **facts, commits=commits.count() - before
            )
        commits.close()
