"""Reads that are counted beside few runs of others and beside ten times as many."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.management.reference_data import ReferenceData
from tests.support.read_costs import ReadCost, cost_of

FEW = int(os.environ.get("COUNTERSIGN_SIZE", "400"))
MANY = 10 * FEW
MOST_GROWTH = 1.3
"""What a deeper index and other pages of a table may add."""
SLACK = {"rows": 30, "buffers": 30, "steps": 500}
"""What a figure may grow by however small it was."""

Reads = Mapping[str, Callable[[], Any]]
"""What is measured, by name."""


def grown(data: ReferenceData, reads: Reads) -> dict[str, tuple[int, int]]:
    """Return the figures that grow with the number of runs, each with its values beside
    few and beside many.
    """
    few = _costs(reads)
    list(data.grow(MANY))
    many = _costs(reads)
    figures = {}
    for name, cost in many.items():
        for figure, value in cost.reads.items():
            before = few[name].reads[figure]
            if value > before * MOST_GROWTH + SLACK[figure]:
                figures[f"{figure} of {name}"] = (before, value)
    return figures


def _costs(reads: Reads) -> dict[str, ReadCost]:
    costs = {}
    for name, act in reads.items():
        # Permissions, content types and texts of queries are kept after the first time.
        act()
        costs[name] = cost_of(act)
        print(f"{name}: {costs[name]}")
    return costs
