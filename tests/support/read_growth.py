"""The reads that cost more once a database has ten times as many runs."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import connection

from orchestrator.management.reference_data import ReferenceData
from tests.support.read_costs import ReadCost, cost_of

MOST_GROWTH = 1.3
"""What a deeper index and other pages of a table may add."""
SLACK = {"rows": 30, "buffers": 30, "steps": 500}
"""What a figure may grow by however small it was."""

Reads = Mapping[str, Callable[[], Any]]
"""The reads that are measured, by name."""


def grown_reads(
    data: ReferenceData, reads: Reads, *, many: int
) -> dict[str, tuple[int, int]]:
    """Add reference data until there are so `many` runs. Returns the figures that grew
    by more than they may: name -> (before, after).
    """
    before = _costs(reads)
    list(data.grow(many))
    after = _costs(reads)
    grown = {}
    for name, cost in after.items():
        for figure, value in cost.reads.items():
            first = before[name].reads[figure]
            if value > first * MOST_GROWTH + SLACK[figure]:
                grown[f"{figure} of {name}"] = (first, value)
    return grown


def _costs(reads: Reads) -> dict[str, ReadCost]:
    settle_plans()
    costs = {}
    for name, act in reads.items():
        # Permissions, content types and texts of queries are kept after the first time.
        act()
        costs[name] = cost_of(act)
        print(f"{name}: {costs[name]}")
    return costs


def settle_plans() -> None:
    """Let PostgreSQL choose its plans by what the tables hold now. Its own daemon would
    do so at a moment that no test knows, perhaps between two measurements.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")


def forget_statistics() -> None:
    """Let SQLite plan as it does where nobody gathered statistics, whatever earlier
    tests did; on PostgreSQL, which gathers them by itself, the same as `settle_plans`.
    """
    if connection.vendor == "postgresql":
        settle_plans()
        return
    with connection.cursor() as cursor:
        # The first makes the table of the statistics where there is none; the last
        # lets the connection read it anew.
        cursor.execute("ANALYZE")
        cursor.execute("DELETE FROM sqlite_stat1")
        cursor.execute("ANALYZE sqlite_master")
