"""Heights: each cell as near to its neighbours' height as order and distance allow. Pure."""

import itertools
from collections.abc import Mapping, Sequence

from orchestrator.display.diagram.order import Beside, Cell, Columns

ROUNDS = 12


def heights(columns: Columns, left: Beside, right: Beside, *, pitch: float, thin: float) -> dict[Cell, float]:
    """The middle of each cell, from 0 downwards. Boxes keep `pitch` between their middles, passing lines `thin`."""
    y: dict[Cell, float] = {}
    for column in columns:
        for row, cell in enumerate(column):
            y[cell] = (row - (len(column) - 1) / 2) * pitch
    for round_number in range(ROUNDS):
        forward = round_number % 2 == 0
        for column in columns if forward else reversed(columns):
            wishes = [_wish(cell, y, left if forward else right, right if forward else left) for cell in column]
            y.update(zip(column, _apart(column, wishes, pitch=pitch, thin=thin), strict=True))
    top = min(y.values(), default=0.0)
    return {cell: round(height - top, 1) for cell, height in y.items()}


def _wish(cell: Cell, y: Mapping[Cell, float], first: Beside, other: Beside) -> float:
    beside = first.get(cell) or other.get(cell)
    return sum(y[c] for c in beside) / len(beside) if beside else y[cell]


def _apart(column: Sequence[Cell], wishes: Sequence[float], *, pitch: float, thin: float) -> list[float]:
    """The heights nearest to the wishes (least squares) that keep order and distance: neighbours share one shift."""
    offsets = [0.0]
    for above, below in itertools.pairwise(column):
        both_thin = isinstance(above, tuple) and isinstance(below, tuple)
        one_thin = isinstance(above, tuple) or isinstance(below, tuple)
        offsets.append(offsets[-1] + (thin if both_thin else (pitch + thin) / 2 if one_thin else pitch))
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=False):
        mean, size = wish - offset, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean = (before * count + mean * size) / (count + size)
            size += count
        pools.append((mean, size))
    shifts = [mean for mean, size in pools for _ in range(size)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=False)]
