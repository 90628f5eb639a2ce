"""W11: a start, and a signature of four writes, from the call to the return. Row 18."""

from bench.bench import OURS, Bench
from bench.contender import Contender

REPEATED = 15


def run(bench: Bench) -> None:
    """Measure both in one process, after a round that warms it."""
    with Contender(OURS, bench.place(OURS, "w11")) as contender:
        contender.ask("w11", times=3)
        for number in range(bench.rounds):
            facts = contender.ask("w11", times=REPEATED)
            bench.add("W11", round=number, **facts)
