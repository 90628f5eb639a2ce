"""W7: n runs of five steps through the queue, worked on by 1, 2 and 4 worker processes. Rows 15 and 16."""

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.workloads.workers import worker

SLOTS = (1, 2, 4)


def run(bench: Bench) -> None:
    """Runs per second, from the commit that starts them all to the end of the last."""
    place = bench.place(OURS, "w7")
    number = bench.size(200, 80)
    with Contender(OURS, place) as one:
        for turn in range(bench.rounds):
            for slots in SLOTS:
                with worker(place, slots=slots):
                    one.ask("workers_ready")
                    one.ask("w7", number=10, log=str(place.folder / f"warm-{turn}-{slots}"))
                    told, commits = bench.limit.around(_timed, one, number, str(place.folder / f"log-{turn}-{slots}"))
                bench.add(
                    "W7", round=turn, workers=slots, runs_per_second=number / told["seconds"], limit=commits,
                    fraction=5 * number / told["seconds"] / commits,
                )  # fmt: skip


def _timed(one: Contender, number: int, log: str) -> dict[str, float]:
    return one.ask("w7", number=number, log=log)
