"""W6: pause for a person, decide, go on; the node's code runs in an idle worker, which
is another process. Rows 13 and 14. Peers decide and go on in one process.
"""

import random
import time
from contextlib import nullcontext

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender
from bench.counting import durable
from bench.workloads.workers import worker


def run(bench: Bench) -> None:
    """Measure how long after the last decision is committed the next node's code
    begins, and count the commits of a whole cycle.
    """
    for number in range(bench.rounds):
        for who in in_turn((OURS, *bench.peers), number):
            _cycles(bench, who, number)


def _cycles(bench: Bench, who: str, round_number: int) -> None:
    place = bench.place(who, "w6")
    log = str(place.folder / "proposals")
    dice = random.Random(round_number)
    with (
        worker(place, slots=2) if who == OURS else nullcontext(),
        Contender(who, place) as contender,
    ):
        if who == OURS:
            contender.ask("workers_ready")
        run = contender.ask("w6_start", log=log)["run"]
        commits = durable.commits(place)
        for number in range(1, bench.size(20, 8) + 1):
            # Until the worker is idle again, and at no fixed distance to its polls.
            time.sleep(0.1 + 0.1 * dice.random())
            before = commits.count()
            facts = contender.ask("w6_cycle", run=run, log=log, number=number)
            # The worker's own heartbeat falls into some cycles; the median is that of a
            # cycle without it.
            counted = commits.count() - before
            bench.add("W6", who, round=round_number, **facts, commits=counted)
        commits.close()
