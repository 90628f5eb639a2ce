"""The height of each cell: as near to its neighbours' heights as order and distance
allow. Pure.
"""

import itertools
from collections.abc import Mapping, Sequence

from orchestrator.display.diagram.order import Beside, Cell, Columns

ROUNDS = 12


def heights(
    columns: Columns,
    left_of: Beside,
    right_of: Beside,
    *,
    pitch: float,
    thin: float,
) -> dict[Cell, float]:
    """Return the middle of each cell, from 0 downwards.

    Boxes keep `pitch` between their middles, passing lines `thin`.
    """
    y: dict[Cell, float] = {}
    for column in columns:
        for row, cell in enumerate(column):
            y[cell] = (row - (len(column) - 1) / 2) * pitch

    # Rounds alternate in direction, so that neighbours on both sides are followed.
    for round_number in range(ROUNDS):
        ordered = list(columns)
        first = left_of
        other = right_of
        if round_number % 2:
            ordered.reverse()
            first = right_of
            other = left_of
        for column in ordered:
            wishes = [_wish(cell, y, first, other) for cell in column]
            placed = _apart(column, wishes, pitch=pitch, thin=thin)
            y.update(zip(column, placed, strict=True))
    top = min(y.values(), default=0.0)
    return {cell: round(height - top, 1) for cell, height in y.items()}


def _wish(
    cell: Cell,
    y: Mapping[Cell, float],
    first: Beside,
    other: Beside,
) -> float:
    """Return the mean height of a cell's neighbours; its own height without any."""
    beside = first.get(cell) or other.get(cell)
    if not beside:
        return y[cell]
    return sum(y[neighbour] for neighbour in beside) / len(beside)


def _apart(
    column: Sequence[Cell],
    wishes: Sequence[float],
    *,
    pitch: float,
    thin: float,
) -> list[float]:
    """Return the heights nearest to the wishes (least squares) that keep order and
    distance: neighbours share one shift.
    """
    offsets = [0.0]
    for above, below in itertools.pairwise(column):
        offsets.append(offsets[-1] + _distance(above, below, pitch=pitch, thin=thin))

    # Pools of neighbours with one shift. A shift below that of the pool above would
    # break the distance, so both become one pool with the mean shift.
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=False):
        mean = wish - offset
        size = 1
        while pools and pools[-1][0] > mean:
            mean_before, size_before = pools.pop()
            total = mean_before * size_before + mean * size
            mean = total / (size_before + size)
            size += size_before
        pools.append((mean, size))

    shifts: list[float] = []
    for mean, size in pools:
        shifts += [mean] * size
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=False)]


def _distance(
    above: Cell,
    below: Cell,
    *,
    pitch: float,
    thin: float,
) -> float:
    """Return the distance of two neighbours; a tuple is a passing line."""
    lines = isinstance(above, tuple) + isinstance(below, tuple)
    if lines == 2:
        return thin
    if lines == 1:
        return (pitch + thin) / 2
    return pitch
