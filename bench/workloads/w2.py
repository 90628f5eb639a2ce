"""W2: a list of 100 KB to which each step appends 1 KB; bytes on disk and the time of a
step as it grows. Rows 6 and 7, and what 2,000 appended lines of 200 bytes take.
"""

from statistics import median
from typing import Any

from bench.bench import OURS, Bench
from bench.contender import Contender

FILL = 100
SIZE = 1024
MB = 1024 * 1024


def run(bench: Bench) -> None:
    """Storage and step times, in a fresh database each time; ours in every round, the
    peers once.
    """
    marks = [50, 250, 500] if bench.short else [100, 500, 1000]
    for who in (*bench.peers, *[OURS] * bench.rounds):
        with Contender(who, bench.place(who, "w2")) as contender:
            contender.ask("w1", steps=3)
            bench.add(
                "W2",
                who,
                **_figures(
                    contender.ask(
                        "w2", steps=marks[-1], size=SIZE, fill=FILL, marks=marks
                    ),
                    marks,
                ),
            )
    with Contender(OURS, bench.place(OURS, "w2_lines")) as contender:
        contender.ask("w1", steps=3)
        facts = contender.ask("w2", steps=2000, size=200, fill=0, marks=[])["bytes"]
        bench.add("W2 lines", lines_mb=(facts["2000"] - facts["0"]) / MB)


def _figures(facts: dict[str, Any], marks: list[int]) -> dict[str, float]:
    first, middle, last = (
        facts["bytes"][str(mark)] - facts["bytes"]["0"] for mark in marks
    )
    some = marks[0]
    # The step after a mark waited for the measuring of bytes.
    times = [
        seconds
        for number, seconds in enumerate(facts["steps"], start=1)
        if number not in marks
    ]
    begin = 1000 * median(times[:some])
    end = 1000 * median(times[-some:])
    figures = {
        f"mb_{mark}": size / MB
        for mark, size in zip(marks, (first, middle, last), strict=True)
    }
    return {
        **figures,
        "growth": (last - middle) / (middle - first),
        "times_changed": last / (1024 * FILL + SIZE * marks[-1]),
        "first_ms": begin,
        "last_ms": end,
        "slower": end / begin,
    }
