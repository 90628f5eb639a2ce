"""The targets: what must be reached and what the floor allows, and how each is read off
the results.

Numbers are those of the project's performance contract. A row gives its measured
figures as text and whether all of them hold; None where it was not measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.bench import OURS
from bench.results import Results

Reading = tuple[str, bool] | None
"""What was measured, and whether it is enough; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table. `read` gives what was measured on a database."""

    number: int
    what: str
    must: str
    aim: str
    read: Callable[[Results, str], Reading]
    databases: tuple[str, ...] = ("postgresql", "sqlite")


def _fraction(
    least: float, *, workload: str = "W1", times: Mapping[str, float] = {}
) -> Callable[[Results, str], Reading]:
    """Our fraction of the limit, at least so much; `times` maps a peer to how many of
    its own fractions that must be, 0 where it is only shown.
    """

    def read(results: Results, database: str) -> Reading:
        where = {"workload": workload, "database": database}
        ours = results.median("fraction", who=OURS, **where)
        if ours is None:
            return None
        facts = [f"{ours:.2f}"]
        good = ours >= least
        # A peer waits for its commits in each of its ways, or in none.
        where["workload"] = workload.removesuffix(" waited")
        for peer, factor in times.items():
            theirs = results.median("fraction", who=peer, **where)
            if theirs:
                facts.append(f"{ours / theirs:.1f} × {peer}")
                good = good and ours / theirs >= factor
        return " · ".join(facts), good

    return read


def _counted(results: Results, database: str) -> Reading:
    names = ("transactions", "fsyncs", "round_trips", "reads")
    most = (1, 1, 2, 0)
    values = [
        results.median(name, workload="W1 counted", database=database, who=OURS)
        for name in names
    ]
    if values[0] is None:
        return None
    facts = " / ".join("–" if value is None else f"{value:g}" for value in values)
    return facts, all(
        value is None or value <= limit
        for value, limit in zip(values, most, strict=True)
    )


def _at_most(
    figure: str, most: float, unit: str = "", **where: object
) -> Callable[[Results, str], Reading]:
    def read(results: Results, database: str) -> Reading:
        value = results.median(figure, database=database, who=OURS, **where)
        return None if value is None else (f"{value:.2f}{unit}", value <= most)

    return read


def _fan_out(results: Results, database: str) -> Reading:
    where = {"workload": "W3", "database": database}
    pure, journaled = (
        results.median("limit_commits", who=OURS, journaled=j, **where)
        for j in (False, True)
    )
    if pure is None or journaled is None:
        return None
    facts = f"{pure:.0f} pure · {journaled:.0f} journaled"
    good = max(pure, journaled) <= 60
    theirs = results.median("limit_commits", who="langgraph", **where)
    if theirs:
        facts += f" · {theirs / journaled:.1f} × langgraph"
        good = good and theirs / journaled >= 4
    return facts, good


def _several(
    *parts: tuple[str, dict[str, object], float, str],
) -> Callable[[Results, str], Reading]:
    """Figures that must each be at most so much; each part is (figure, where, most,
    form).
    """

    def read(results: Results, database: str) -> Reading:
        values = [
            results.median(figure, database=database, who=OURS, **where)
            for figure, where, _, _ in parts
        ]
        if any(value is None for value in values):
            return None
        measured = [value for value in values if value is not None]
        facts = " · ".join(
            form.format(value)
            for value, (*_, form) in zip(measured, parts, strict=True)
        )
        return facts, all(
            value <= most
            for value, (_, _, most, _) in zip(measured, parts, strict=True)
        )

    return read


def _resume(results: Results, database: str) -> Reading:
    where = {"workload": "W4", "database": database, "who": OURS}
    lengths = sorted(set(results.values("after", **where)))
    if not lengths:
        return None
    short, long = (
        results.median("to_node_ms", after=int(n), **where) or 0.0
        for n in (lengths[0], lengths[-1])
    )
    return (
        f"{long:.1f} ms after {lengths[-1]:.0f} steps; {long / short:.2f}",
        long <= 10 and long / short <= 1.5,
    )


def _late_step(results: Results, database: str) -> Reading:
    """Compare step 10,000 of the longest history with step 100; in a short bench step
    1,000.
    """
    where = {"workload": "W4 steps", "database": database, "who": OURS}
    lengths = results.values("steps", **where)
    if not lengths:
        return None
    value = results.median("slower", steps=int(max(lengths)), **where) or 0.0
    return f"{value:.2f} (step {max(lengths):.0f})", value <= 1.5


def _listing(results: Results, database: str) -> Reading:
    where = {"workload": "W5 list", "database": database, "who": OURS}
    small, large = (
        results.median("list_ms", grown=grown, **where) for grown in ("1 KB", "1 MB")
    )
    if small is None or large is None:
        return None
    return f"{small:.2f} ms; {large / small:.2f} ×", small <= 2 and large / small <= 1.2


def _reading(results: Results, database: str) -> Reading:
    where = {"workload": "W5 read", "database": database, "who": OURS}
    ratios = [
        _worst(results, "ratio", **where, grown=grown) for grown in ("1 KB", "1 MB")
    ]
    small, large = (
        _worst(results, "ms", **where, grown=grown, full=True)
        for grown in ("1 KB", "1 MB")
    )
    if small is None or large is None or None in ratios:
        return None
    ratio = max(ratio for ratio in ratios if ratio is not None)
    return (
        f"{ratio:.2f}; {small:.2f} ms; {large:.1f} ms",
        ratio <= 2.5 and small <= 2 and large <= 15,
    )


def _worst(results: Results, figure: str, **where: object) -> float | None:
    """Return the largest median over the rounds among all positions in the history;
    None if none was measured.
    """
    medians = []
    for place in set(results.values("where", **where)):
        medians.append(results.median(figure, where=place, **where) or 0.0)
    return max(medians, default=None)


def _beside(results: Results, database: str) -> Reading:
    """Read the figures beside the most runs, and the superstep beside a gate in steps
    without one.
    """
    where = {"workload": "W8", "database": database, "who": OURS}
    counts = results.values("beside", **where)
    if not counts:
        return None
    most = int(max(counts))
    claim = results.median("claim_ms", beside=most, **where) or 0.0
    inbox = results.median("inbox_ms", beside=most, **where) or 0.0
    listed = results.median("list_ms", beside=most, **where) or 0.0

    where["workload"] = "W8 steps"
    alone = results.median("step_ms", proposals=0, **where) or 0.0
    gated = results.median("step_ms", proposals=1_000, **where) or 0.0
    facts = (
        f"{claim:.1f} ms; {inbox:.0f} ms, {listed:.0f} ms; {gated / alone:.1f}"
        f" (beside {most:,} runs)"
    )
    good = claim <= 1 and max(inbox, listed) <= 20 and gated / alone <= 1.5
    return facts, good


def _waking(results: Results, database: str) -> Reading:
    most = 8 if database == "postgresql" else 20
    return _at_most("ms", most, " ms", workload="W6")(results, database)


def _unprepared(results: Results, database: str) -> Reading:
    where = {"workload": "W1 unprepared", "database": database, "who": OURS}
    fraction, cpu = (
        results.median(figure, **where) for figure in ("fraction", "cpu_ms")
    )
    return (
        None
        if fraction is None or cpu is None
        else (f"{fraction:.2f} · {cpu:.2f} ms", True)
    )


def _view(results: Results, database: str) -> Reading:
    where = {"workload": "W10", "database": database, "who": OURS}
    shapes = dict.fromkeys(results.texts("shape", **where))
    if not shapes:
        return None
    value, worst = max(
        (results.median("cpu_ms", shape=shape, **where) or 0.0, shape)
        for shape in shapes
    )
    return f"{value:.0f} ms ({worst})", value <= 300


def _queue(results: Results, database: str) -> Reading:
    least = 0.45 if database == "postgresql" else 0.22
    value = results.median(
        "fraction", workload="W7", database=database, who=OURS, workers=2
    )
    return None if value is None else (f"{value:.2f}", value >= least)


def _scaling(results: Results, database: str) -> Reading:
    value = results.median(
        "four_to_one", workload="W7 scaling", database=database, who=OURS
    )
    return None if value is None else (f"{value:.2f}", value >= 1)


PG = ("postgresql",)
LITE = ("sqlite",)
TARGETS = (
    Target(
        1,
        "W1, fraction of the commit limit",
        "≥ 0.55, ≥ 2 × langgraph, ≥ 4 × dbos",
        "0.70",
        _fraction(0.55, times={"langgraph": 2, "langgraph-async": 0, "dbos": 4}),
        PG,
    ),
    Target(
        2,
        "the same with 1 ms added to each commit",
        "≥ 0.70",
        "0.80",
        _fraction(0.70, workload="W1 slow"),
        PG,
    ),
    Target(
        3,
        "W1, fraction of the commit limit",
        "≥ 0.28, ≥ 2 × langgraph",
        "0.40",
        _fraction(0.28, times={"langgraph": 2, "langgraph-async": 0}),
        LITE,
    ),
    Target(
        4,
        "per superstep: transactions / fsyncs / round trips / reads",
        "1 / 1 / ≤ 2 / 0",
        "1 / 1 / 1 / 0",
        _counted,
    ),
    Target(
        5,
        "client and server CPU per step",
        "≤ 0.7 ms",
        "≤ 0.5 ms",
        _at_most("cpu_ms", 0.7, " ms", workload="W1"),
        PG,
    ),
    Target(
        6,
        "W2: growth · bytes ÷ changed data",
        "≤ 1.4 · ≤ 4",
        "≤ 1.3 · ≤ 3",
        _several(
            ("growth", {"workload": "W2"}, 1.4, "{:.2f}"),
            ("times_changed", {"workload": "W2"}, 4, "{:.2f}"),
        ),
    ),
    Target(
        7,
        "W2: step time, last steps ÷ first",
        "≤ 1.2",
        "1.0",
        _at_most("slower", 1.2, workload="W2"),
    ),
    Target(
        8,
        "W3: 100 leaves and the join",
        "≤ 60 commits, ≥ 4 × faster than langgraph",
        "≤ 25 commits",
        _fan_out,
    ),
    Target(
        9,
        "W4: claim → first new step; longest ÷ shortest history",
        "≤ 10 ms; ≤ 1.5",
        "≤ 4 ms; 1.0",
        _resume,
    ),
    Target(
        10,
        "W5: list the last 50; the same with a state of 1 MB",
        "≤ 2 ms; ≤ 1.2 ×",
        "≤ 1 ms",
        _listing,
    ),
    Target(
        11,
        "W5: bytes read ÷ state; 1 KB state; 1 MB state",
        "≤ 2.5; ≤ 2 ms; ≤ 15 ms",
        "≤ 2; ≤ 1 ms; ≤ 8 ms",
        _reading,
    ),
    Target(
        12,
        "W9: fork with a patch; with its first step; longest ÷ shortest history",
        "≤ 5 ms; ≤ 10 ms; ≤ 1.1",
        "≤ 2 ms",
        _several(
            ("fork_ms", {"workload": "W9"}, 5, "{:.1f} ms"),
            ("long_ms", {"workload": "W9"}, 10, "{:.1f} ms"),
            ("longer", {"workload": "W9"}, 1.1, "{:.2f}"),
        ),
    ),
    Target(
        13,
        "W6: last decision committed → node code in an idle worker",
        "≤ 8 ms PG, ≤ 20 ms SQLite",
        "≤ 5 ms, ≤ 10 ms",
        _waking,
    ),
    Target(
        14,
        "W6: durable commits of a cycle",
        "≤ 6",
        "4",
        _at_most("commits", 6, workload="W6"),
    ),
    Target(
        15,
        "W7, 2 worker processes: 5 × runs/s ÷ limit",
        "≥ 0.45 PG, ≥ 0.22 SQLite",
        "≥ 0.60, ≥ 0.40",
        _queue,
    ),
    Target(16, "W7: 4 worker processes ÷ 1", "≥ 1.0", "≥ 1.8", _scaling),
    Target(
        17,
        "W1, each commit waited for before the next node begins",
        "≥ 0.42",
        "0.55",
        _fraction(0.42, workload="W1 waited", times={"langgraph": 0}),
        PG,
    ),
    Target(
        18,
        "W11: start · sign four writes",
        "≤ 3 ms · ≤ 8 ms",
        "≤ 1.5 ms · ≤ 4 ms",
        _several(
            ("start_ms", {"workload": "W11"}, 3, "{:.1f} ms"),
            ("sign_ms", {"workload": "W11"}, 8, "{:.1f} ms"),
        ),
    ),
    Target(
        19,
        "W8: idle claim; inbox, run list; superstep beside a gate of 1,000 writes ÷ without",
        "≤ 1 ms; ≤ 20 ms; ≤ 1.5",
        "≤ 0.3 ms; ≤ 5 ms; 1.1",
        _beside,
    ),
    Target(
        25,
        "W12: memory (PSS) of a worker of two, idle · after 20 runs",
        "≤ 100 MB · ≤ 120 MB",
        "80 MB · 90 MB",
        _several(
            ("idle_mb", {"workload": "W12"}, 100, "{:.0f} MB"),
            ("after_mb", {"workload": "W12"}, 120, "{:.0f} MB"),
        ),
    ),
    Target(
        27,
        "W9: blame of a value of the first step; longest ÷ shortest history",
        "≤ 5 ms; ≤ 1.5",
        "2 ms; 1.1",
        _several(
            ("blame_ms", {"workload": "W9"}, 5, "{:.1f} ms"),
            ("blame_longer", {"workload": "W9"}, 1.5, "{:.2f}"),
        ),
    ),
    Target(
        0,
        "W10: CPU of one view of a review of 4 MiB, the worst shape",
        "≤ 300 ms",
        "",
        _view,
    ),
    Target(
        0,
        "2,000 steps that append 200 B each",
        "≤ 15 MB",
        "",
        _at_most("lines_mb", 15, " MB"),
    ),
    Target(
        0,
        "W1 without prepared statements: fraction · CPU per step",
        "",
        "",
        _unprepared,
        PG,
    ),
    Target(0, "a late step ÷ an early one", "≤ 1.5", "1.0", _late_step),
)
