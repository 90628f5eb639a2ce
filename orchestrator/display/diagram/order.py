"""Which row each cell of a column takes: few crossings, by barycentre sweeps. Pure.

A cell is a box's name, or (link number, column) where a long link passes through a column.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Cell: TypeAlias = str | tuple[int, int]
Columns: TypeAlias = Sequence[Sequence[Cell]]
Beside: TypeAlias = Mapping[Cell, list[Cell]]
"""The neighbours of each cell, on one side."""
Joint: TypeAlias = tuple[Cell, Cell]

SWEEPS = 8


def order(columns: Sequence[Sequence[Cell]], joints: Sequence[Joint]) -> list[list[Cell]]:
    """The columns with their cells re-ordered. `joints` connect cells of neighbouring columns only, left to right."""
    left, right = neighbours(joints)
    best = now = [list(column) for column in columns]
    fewest = crossings(now, right)
    for sweep in range(SWEEPS):
        now = _sweep(now, left if sweep % 2 == 0 else right, forward=sweep % 2 == 0)
        count = crossings(now, right)
        if count < fewest:
            best, fewest = now, count
    return best


def neighbours(joints: Sequence[Joint]) -> tuple[dict[Cell, list[Cell]], dict[Cell, list[Cell]]]:
    """For each cell its neighbours to the left, and those to the right."""
    left: dict[Cell, list[Cell]] = {}
    right: dict[Cell, list[Cell]] = {}
    for source, target in joints:
        right.setdefault(source, []).append(target)
        left.setdefault(target, []).append(source)
    return left, right


def _sweep(columns: list[list[Cell]], beside: Mapping[Cell, list[Cell]], *, forward: bool) -> list[list[Cell]]:
    result = [list(column) for column in columns]
    numbers = range(1, len(result)) if forward else range(len(result) - 2, -1, -1)
    for number in numbers:
        fixed = {cell: row for row, cell in enumerate(result[number - 1 if forward else number + 1])}
        middle = {cell: _middle(cell, beside, fixed, row) for row, cell in enumerate(result[number])}
        result[number].sort(key=middle.__getitem__)
    return result


def _middle(cell: Cell, beside: Mapping[Cell, list[Cell]], fixed: Mapping[Cell, int], row: int) -> float:
    rows = [fixed[other] for other in beside.get(cell, ()) if other in fixed]
    return sum(rows) / len(rows) if rows else row


def crossings(columns: Sequence[Sequence[Cell]], right: Mapping[Cell, list[Cell]]) -> int:
    """How many pairs of lines cross between neighbouring columns."""
    total = 0
    for here, there in itertools.pairwise(columns):
        row = {cell: number for number, cell in enumerate(there)}
        ends = [row[target] for cell in here for target in sorted(right.get(cell, ()), key=row.__getitem__)]
        total += sum(1 for i, end in enumerate(ends) for other in ends[i + 1 :] if other < end)
    return total
