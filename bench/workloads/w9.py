"""W9: a fork from the middle of a long and of a short history, with a patch, and its
first step; beside a bare start of the same graph and its first step. Row 12. And the
blame of a value that was set in the first step of either: row 27. Without the peers.
"""

from bench.bench import OURS, Bench, in_turn
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
            blamed = {}
            for steps in in_turn(lengths, number):
                asked = contender.ask("w9_blame", run=histories[steps])
                blamed[steps] = asked["blame"]
            bench.add(
                "W9",
                round=number,
                steps=lengths[-1],
                fork_ms=facts["fork"],
                long_ms=facts["long"],
                longer=facts["long"] / facts["short"],
                starts=facts["long"] / facts["start"],
                blame_ms=blamed[lengths[-1]],
                blame_longer=blamed[lengths[-1]] / blamed[SHORT],
            )
