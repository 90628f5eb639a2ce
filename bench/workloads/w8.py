"""W8: beside many runs of others. A claim that finds nothing, an inbox and a list of
runs, beside a tenth of them and beside all; and a superstep beside a gate that waits.
Row 19.
"""

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender

STEPS = 60
PROPOSALS = (0, 1_000)


def run(bench: Bench) -> None:
    """Measure the reads twice, with ten times as many runs the second time, and then the
    supersteps.
    """
    most = bench.beside or bench.size(200_000, 2_000)
    with Contender(OURS, bench.place(OURS, "w8")) as contender:
        for count in (most // 10, most):
            contender.ask("w8_fill", count=count)
            # Permissions and texts of queries are kept after the first time.
            contender.ask("w8")
            for number in range(bench.rounds):
                bench.add("W8", round=number, beside=count, **contender.ask("w8"))
        for proposals in PROPOSALS:
            contender.ask("w8_step", steps=STEPS, proposals=proposals)
        for number in range(bench.rounds):
            for proposals in in_turn(PROPOSALS, number):
                facts = contender.ask("w8_step", steps=STEPS, proposals=proposals)
                bench.add("W8 steps", round=number, proposals=proposals, **facts)
