"""The path of each line as SVG path data. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Placed:
    """A box on the page: its left upper corner and its size."""

    name: str
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def half(self) -> float:
        return self.width / 2

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


Stop: TypeAlias = tuple[float, float, float]
"""Where a long line crosses a column: left edge, right edge, height."""

TIP = 1.5
"""How far before the box the line ends, so that the arrow's tip touches it."""


def forward(source: Placed, target: Placed, stops: Sequence[Stop]) -> str:
    """From the right side of one box to the left side of another, straight across the columns between."""
    parts = [f"M{source.right:g} {source.middle:g}"]
    x, y = source.right, source.middle
    for left, right, height in stops:
        parts.append(_curve(x, y, left, height))
        parts.append(f"H{right:g}")
        x, y = right, height
    parts.append(_curve(x, y, target.x - TIP, target.middle))
    return "".join(parts)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(y - to_y) < 0.5:
        return f"L{to_x:g} {to_y:g}"
    half = round((to_x - x) / 2, 1)
    return f"C{x + half:g} {y:g} {to_x - half:g} {to_y:g} {to_x:g} {to_y:g}"


def back(source: Placed, target: Placed, lane: float, *, free_below: tuple[bool, bool], gap: float) -> str:
    """Back to an earlier column, along a lane below everything. `free_below`: nothing stands under the two boxes."""
    out_free, in_free = free_below
    out_x = source.centre if out_free else source.right + gap
    in_x = target.centre if in_free else target.x - gap
    side = f"M{source.right:g} {source.middle:g}h{gap - 6:g}q6 0 6 6"
    start = f"M{source.centre:g} {source.bottom:g}" if out_free else side
    end = f"V{target.bottom + TIP:g}" if in_free else f"V{target.middle + 6:g}q0 -6 6 -6H{target.x - TIP:g}"
    down = f"V{lane - 8:g}Q{out_x:g} {lane:g} {out_x - 8:g} {lane:g}"
    up = f"H{in_x + 8:g}Q{in_x:g} {lane:g} {in_x:g} {lane - 8:g}"
    return start + down + up + end


def own(box: Placed) -> str:
    """From a box to itself: an arc above it."""
    left, right, top = box.centre - 12, box.centre + 12, box.y
    return f"M{right:g} {top:g}C{right:g} {top - 20:g} {left:g} {top - 20:g} {left:g} {top - TIP:g}"
