"""W3: plan, 100 parallel trivial nodes, join; with pure nodes, and with journaled ones
that are durable one by one.
"""

from typing import Any

from bench.bench import Bench, in_turn
from bench.contender import Contender


def run(bench: Bench) -> None:
    """Return what a whole run costs, in commits of the limit. Row 8 of the targets."""
    with bench.contenders("w3") as contenders:
        # A peer knows one way only: each leaf durable by itself.
        cases = [(contender, True) for contender in contenders]
        cases.append((contenders[0], False))
        for contender, journaled in cases:
            contender.ask("w3", journaled=journaled)
        for number in range(bench.rounds):
            for contender, journaled in in_turn(cases, number):
                facts, commits = bench.limit.around(_timed, contender, journaled)
                bench.add(
                    "W3",
                    contender.name,
                    round=number,
                    journaled=journaled,
                    ms=1000 * facts["seconds"],
                    limit=commits,
                    limit_commits=facts["seconds"] * commits,
                )


def _timed(contender: Contender, journaled: bool) -> dict[str, Any]:
    return contender.ask("w3", journaled=journaled)
