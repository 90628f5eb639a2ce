"""W9: a fork from the middle of a long and of a short history, with a patch, and its
first step; beside a bare start of the same graph and its first step. Row 12. Peers are
not asked.
"""

from bench.bench import OURS, Bench
from bench.contender import Contender

SHORT = 100
REPEATED = 15


def run(bench: Bench) -> None:
    """The three in turn, each its median of so many, so that what else the machine does
    falls on all of them.
    """
    lengths = (SHORT, bench.size(10_000, 1000))
    with Contender(OURS, bench.place(OURS, "w9")) as contender:
        histories = {
            steps: str(contender.ask("w9_history", steps=steps)["run"])
            for steps in lengths
        }
        for number in range(bench.rounds):
            facts = contender.ask(
                "w9",
                short=histories[SHORT],
                long=histories[lengths[-1]],
                times=REPEATED,
            )
            ratios = {
                "longer": facts["long"] / facts["short"],
                "starts": facts["long"] / facts["start"],
            }
            bench.add(
                "W9",
                round=number,
                steps=lengths[-1],
                **{f"{n}_ms": ms for n, ms in facts.items()},
                **ratios,
            )
