"""W4: the process is killed after step n; a new one goes on. Row 9, and the time of a
late step beside an early one.
"""

from dataclasses import dataclass
from statistics import median

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender
from bench.places import Place

KILLED = -9
LEASE = {"COUNTERSIGN_LEASE_SECONDS": "0.5"}


@dataclass
class History:
    """A run that nobody holds any more, and how far it got. `length` is that of its
    first life.
    """

    who: str
    place: Place
    run: str
    steps: int
    length: int


def run(bench: Bench) -> None:
    """Measure the time from the claim to the first new step, after histories of three
    lengths; the peers after the longest.
    """
    lengths = (100, 300, 1000) if bench.short else (100, 1000, 10_000)
    histories = [die_after(bench, OURS, steps) for steps in lengths]
    histories += [die_after(bench, who, lengths[-1]) for who in bench.peers]
    for number in range(bench.rounds):
        for history in in_turn(histories, number):
            with Contender(history.who, history.place, **LEASE) as contender:
                facts = contender.ask("w4_resume", run=history.run, after=history.steps)
                assert contender.ended() == KILLED
            history.steps += 1
            bench.add("W4", history.who, round=number, after=history.length, **facts)
    bench.shared["histories"] = {
        history.who: history for history in histories if history.length == lengths[-1]
    }


def die_after(bench: Bench, who: str, steps: int) -> History:
    """Return a run of W1 whose process was killed right after that step."""
    place = bench.place(who, "w4")
    with Contender(who, place, **LEASE) as contender:
        facts = contender.ask("w4_die", steps=steps)
        assert contender.ended() == KILLED
    times = facts["steps"]
    early = 1000 * median(times[50:150])
    late = 1000 * median(times[-100:])
    bench.add(
        "W4 steps", who, steps=steps, early_ms=early, late_ms=late, slower=late / early
    )
    return History(who, place, facts["run"], steps, steps)
