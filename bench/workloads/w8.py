"""W8: the page of a review whose value has 4 MiB; the CPU that one view of it costs, for several shapes of value."""

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.graphs import PROPOSALS


def run(bench: Bench) -> None:
    """One run for each shape; its page is asked for again and again."""
    with Contender(OURS, bench.place(OURS, "w8")) as one:
        asked = {shape: one.ask("w8_start", shape=shape)["run"] for shape in PROPOSALS}
        for number in range(bench.rounds):
            for shape, review in asked.items():
                bench.add("W8", shape=shape, round=number, **one.ask("w8_view", run=review))
