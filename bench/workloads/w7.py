"""W7: n runs of five steps through the queue, worked on by 1, 2 and 4 worker processes.
Rows 15 and 16. DBOS works on its queue in two processes; LangGraph has none.
"""

from typing import Any

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender
from bench.places import Place
from bench.workloads.workers import worker

SLOTS = (1, 2, 4)


def run(bench: Bench) -> None:
    """Measure the runs per second, from the first start to the end of the last."""
    place = bench.place(OURS, "w7")
    theirs = bench.place("dbos", "w7") if "dbos" in bench.peers else None
    with Contender(OURS, place) as contender:
        for turn in range(bench.rounds):
            rates = {}
            for slots in in_turn(SLOTS, turn):
                with worker(place, slots=slots):
                    contender.ask("workers_ready")
                    rates[slots] = _measure(bench, contender, turn, slots)
            bench.add("W7 scaling", round=turn, four_to_one=rates[4] / rates[1])
            if theirs:
                _dbos(bench, theirs, turn)


def _dbos(bench: Bench, place: Place, turn: int) -> None:
    with (
        Contender("dbos", place, DBOS__VMID="one") as contender,
        Contender("dbos", place, DBOS__VMID="two") as other,
    ):
        other.ask("workers_ready")
        _measure(bench, contender, turn, 2)


def _measure(bench: Bench, contender: Contender, turn: int, workers: int) -> float:
    folder = contender.place.folder
    number = bench.size(200, 80)
    contender.ask("w7", number=10, log=str(folder / f"warm-{turn}-{workers}"))
    log = str(folder / f"log-{turn}-{workers}")
    facts, commits = bench.limit.around(_timed, contender, number, log)
    rate = float(number / facts["seconds"])
    bench.add(
        "W7",
        contender.name,
        round=turn,
        workers=workers,
        runs_per_second=rate,
        limit=commits,
        fraction=5 * rate / commits,
    )
    return rate


def _timed(contender: Contender, number: int, log: str) -> dict[str, Any]:
    return contender.ask("w7", number=number, log=log)
