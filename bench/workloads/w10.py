"""W10: the page of a review whose value has 4 MiB; the CPU that one view of it costs,
for several shapes of value.
"""

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.graphs import PROPOSALS


def run(bench: Bench) -> None:
    """Request the page of one run for each shape, again and again."""
    with Contender(OURS, bench.place(OURS, "w10")) as contender:
        reviews = {
            shape: contender.ask("w10_start", shape=shape)["run"] for shape in PROPOSALS
        }
        for number in range(bench.rounds):
            for shape, review in reviews.items():
                bench.add(
                    "W10",
                    shape=shape,
                    round=number,
                    **contender.ask("w10_view", run=review),
                )
