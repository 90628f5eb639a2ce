"""W2: a list of 100 KB to which each step appends 1 KB; bytes on disk and the time of a
step as it grows. Rows 6 and 7, and what 2,000 appended lines of 200 bytes take.
"""

from statistics import median
from typing import Any

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender

FILL = 100
SIZE = 1024
MB = 1024 * 1024


def run(bench: Bench) -> None:
    """Storage and step times, each time in a fresh database."""
    marks = [50, 250, 500] if bench.short else [100, 500, 1000]
    for number in range(bench.rounds):
        for who in in_turn((OURS, *bench.peers), number):
            with Contender(who, bench.place(who, "w2")) as contender:
                contender.ask("w1", steps=3)
                facts = contender.ask(
                    "w2", steps=marks[-1], size=SIZE, fill=FILL, marks=marks
                )
                bench.add("W2", who, round=number, **_figures(facts, marks))
    with Contender(OURS, bench.place(OURS, "w2_lines")) as contender:
        contender.ask("w1", steps=3)
        facts = contender.ask("w2", steps=2000, size=200, fill=0, marks=[])["bytes"]
        bench.add("W2 lines", lines_mb=(facts["2000"] - facts["0"]) / MB)


def _figures(facts: dict[str, Any], marks: list[int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    sizes = []
    for mark in marks:
        size = facts["bytes"][str(mark)] - facts["bytes"]["0"]
        figures[f"mb_{mark}"] = size / MB
        sizes.append(size)
    first, middle, last = sizes

    times = []
    for number, seconds in enumerate(facts["steps"], start=1):
        # The step after a mark waited for the measuring of bytes.
        if number not in marks:
            times.append(seconds)
    some = marks[0]
    begin = 1000 * median(times[:some])
    end = 1000 * median(times[-some:])
    return {
        **figures,
        "growth": (last - middle) / (middle - first),
        "times_changed": last / (1024 * FILL + SIZE * marks[-1]),
        "first_ms": begin,
        "last_ms": end,
        "slower": end / begin,
    }
