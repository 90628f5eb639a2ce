"""W3: plan, 100 parallel trivial nodes, join; with pure nodes, and with journaled ones that are durable one by one."""

from typing import Any

from bench.bench import OURS, Bench
from bench.contender import Contender


def run(bench: Bench) -> None:
    """What a whole run costs, in commits of the limit. Row 8 of the targets."""
    with bench.contenders("w3") as contenders:
        asked = [(one, journaled) for one in contenders for journaled in (False, True)]
        # A peer knows one way only: each leaf durable by itself.
        asked = [(one, journaled) for one, journaled in asked if one.name == OURS or journaled]
        for one, journaled in asked:
            one.ask("w3", journaled=journaled)
        for number in range(bench.rounds):
            for one, journaled in asked:
                facts, commits = bench.limit.around(_asked, one, journaled)
                bench.add(
                    "W3", one.name, round=number, journaled=journaled, ms=1000 * facts["seconds"], limit=commits,
                    limit_commits=facts["seconds"] * commits,
                )  # fmt: skip


def _asked(one: Contender, journaled: bool) -> dict[str, Any]:
    return one.ask("w3", journaled=journaled)
