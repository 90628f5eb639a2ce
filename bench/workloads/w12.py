"""W12: the memory of a worker with two worker processes, before its first run and after
twenty runs of W7. Row 25.
"""

import time

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.counting.memory import megabytes_of
from bench.workloads.workers import worker

SLOTS = 2
SETTLING = 3.0
"""Seconds in which the processes of a cluster come up."""


def run(bench: Bench) -> None:
    """Measure a new worker in each round."""
    place = bench.place(OURS, "w12")
    with Contender(OURS, place) as contender:
        for number in range(bench.rounds):
            with worker(place, slots=SLOTS) as session:
                contender.ask("workers_ready")
                time.sleep(SETTLING)
                idle = megabytes_of(session)
                log = str(place.folder / f"log-{number}")
                contender.ask("w7", number=20, log=log)
                after = megabytes_of(session)
            bench.add("W12", round=number, idle_mb=idle, after_mb=after)
