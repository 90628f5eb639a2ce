"""The row that each cell of a column takes: few crossings, by barycentre sweeps. Pure.

A cell is a box's name, or (link number, column) where a long link passes through a
column.
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


def order(columns: Columns, joints: Sequence[Joint]) -> list[list[Cell]]:
    """Return the columns with their cells re-ordered. `joints` connect cells of
    neighbouring columns only, left to right.
    """
    left_of, right_of = neighbours(joints)
    current = [list(column) for column in columns]
    best = current
    fewest = crossings(current, right_of)
    for number in range(SWEEPS):
        # Sweeps alternate: each column follows the one before it, then the one after.
        if number % 2 == 0:
            current = _sweep_forward(current, left_of)
        else:
            current = _sweep_backward(current, right_of)
        count = crossings(current, right_of)
        # A sweep may add crossings, so the last order need not be the best.
        if count < fewest:
            best = current
            fewest = count
    return best


def neighbours(
    joints: Sequence[Joint],
) -> tuple[dict[Cell, list[Cell]], dict[Cell, list[Cell]]]:
    """Return for each cell its neighbours to the left, and those to the right."""
    left_of: dict[Cell, list[Cell]] = {}
    right_of: dict[Cell, list[Cell]] = {}
    for source, target in joints:
        right_of.setdefault(source, []).append(target)
        left_of.setdefault(target, []).append(source)
    return left_of, right_of


def _sweep_forward(
    columns: list[list[Cell]],
    left_of: Beside,
) -> list[list[Cell]]:
    """Return the columns, each ordered by its neighbours on the left."""
    ordered = columns[:1]
    for column in columns[1:]:
        ordered.append(_in_order_of(ordered[-1], column, left_of))
    return ordered


def _sweep_backward(
    columns: list[list[Cell]],
    right_of: Beside,
) -> list[list[Cell]]:
    """Return the columns, each in the order of what stands to its right."""
    backward = columns[-1:]
    for column in columns[-2::-1]:
        backward.append(_in_order_of(backward[-1], column, right_of))
    return backward[::-1]


def _in_order_of(
    fixed: list[Cell],
    column: list[Cell],
    beside: Beside,
) -> list[Cell]:
    """Return the cells of a column in the order of the mean row of their neighbours in
    the `fixed` one.
    """
    fixed_rows = _rows_of(fixed)
    mean_rows: dict[Cell, float] = {}
    for row, cell in enumerate(column):
        rows = []
        for neighbour in beside.get(cell, ()):
            if neighbour in fixed_rows:
                rows.append(fixed_rows[neighbour])
        # A cell without neighbours stays in its row.
        mean_rows[cell] = sum(rows) / len(rows) if rows else row
    return sorted(column, key=mean_rows.__getitem__)


def _rows_of(column: Sequence[Cell]) -> dict[Cell, int]:
    return {cell: row for row, cell in enumerate(column)}


def crossings(columns: Columns, right_of: Beside) -> int:
    """Return how many pairs of lines cross between neighbouring columns."""
    count = 0
    for column, next_column in itertools.pairwise(columns):
        row_of = _rows_of(next_column)
        ends: list[int] = []
        for cell in column:
            # Lines from one cell don't cross each other.
            ends += sorted(row_of[target] for target in right_of.get(cell, ()))
        count += _inversions(ends)
    return count


def _inversions(rows: Sequence[int]) -> int:
    """Return how many pairs of rows are not in ascending order."""
    count = 0
    for position, row in enumerate(rows):
        count += sum(1 for later in rows[position + 1 :] if later < row)
    return count
