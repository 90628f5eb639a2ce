"""The targets: what must be reached and what the floor allows, and how each is read off the results.

Numbers are those of the project's performance contract. A row gives its measured figures as text and whether all of
them hold; None where it was not measured.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bench.bench import OURS
from bench.results import Results

Found = tuple[str, bool] | None


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table. `read` gives what was measured on a database."""

    number: int
    what: str
    must: str
    aim: str
    read: Callable[[Results, str], Found]
    databases: tuple[str, ...] = ("postgresql", "sqlite")


def _nothing(results: Results, database: str) -> Found:
    return None


def _fraction(least: float, *, workload: str = "W1", **times: float) -> Callable[[Results, str], Found]:
    def read(results: Results, database: str) -> Found:
        where = {"workload": workload, "database": database}
        ours = results.median("fraction", who=OURS, **where)
        if ours is None:
            return None
        told, good = [f"{ours:.2f}"], ours >= least
        for peer, wanted in times.items():
            theirs = results.median("fraction", who=peer, **where)
            if theirs:
                told.append(f"{ours / theirs:.1f} × {peer}")
                good = good and ours / theirs >= wanted
        return " · ".join(told), good

    return read


def _counted(results: Results, database: str) -> Found:
    names = ("transactions", "fsyncs", "round_trips", "reads")
    most = (1, 1, 2, 0)
    found = [results.median(name, workload="W1 counted", database=database, who=OURS) for name in names]
    if found[0] is None:
        return None
    told = " / ".join("–" if value is None else f"{value:g}" for value in found)
    return told, all(value is None or value <= limit for value, limit in zip(found, most, strict=True))


def _at_most(figure: str, most: float, unit: str = "", **where: object) -> Callable[[Results, str], Found]:
    def read(results: Results, database: str) -> Found:
        value = results.median(figure, database=database, who=OURS, **where)
        return None if value is None else (f"{value:.2f}{unit}", value <= most)

    return read


def _fan_out(results: Results, database: str) -> Found:
    where = {"workload": "W3", "database": database}
    pure, journaled = (results.median("limit_commits", who=OURS, journaled=j, **where) for j in (False, True))
    if pure is None or journaled is None:
        return None
    told, good = f"{pure:.0f} pure · {journaled:.0f} journaled", max(pure, journaled) <= 60
    theirs = results.median("limit_commits", who="langgraph", **where)
    if theirs:
        told += f" · {theirs / journaled:.1f} × langgraph"
        good = good and theirs / journaled >= 4
    return told, good


PG, LITE = ("postgresql",), ("sqlite",)
TARGETS = (
    Target(
        1, "W1, fraction of the commit limit", "≥ 0.40, ≥ 2 × langgraph, ≥ 4 × dbos", "0.55",
        _fraction(0.40, langgraph=2, dbos=4), PG,
    ),
    Target(2, "the same with 1 ms added to each commit", "≥ 0.70", "0.80", _fraction(0.70, workload="W1 slow"), PG),
    Target(
        3, "W1, fraction of the commit limit", "≥ 0.28, ≥ 2 × langgraph", "0.40", _fraction(0.28, langgraph=2), LITE
    ),
    Target(
        4, "per superstep: transactions / fsyncs / round trips / reads", "1 / 1 / ≤ 2 / 0", "1 / 1 / 1 / 0", _counted
    ),
    Target(
        5, "client and server CPU per step", "≤ 0.7 ms", "≤ 0.5 ms", _at_most("cpu_ms", 0.7, " ms", workload="W1"), PG
    ),
    Target(
        8, "W3: 100 leaves and the join", "≤ 60 commits, ≥ 4 × faster than langgraph", "≤ 25 commits", _fan_out
    ),
)  # fmt: skip
LEFT_OUT = "Row 12 (a fork with a patch) is left out: forks come with time travel."
