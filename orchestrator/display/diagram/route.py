"""The path of each line, as SVG path data. Pure."""

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
"""Where a long line crosses a column: x of its left edge, x of its right edge, y of the
line.
"""

TIP = 1.5
"""How far before the box the line ends, so that the arrow's tip touches it."""


def forward(source: Placed, target: Placed, stops: Sequence[Stop]) -> str:
    """Return the path from the right side of one box to the left side of another,
    straight across the columns between.
    """
    parts = [f"M{source.right:g} {source.middle:g}"]
    x = source.right
    y = source.middle
    # A column on the way is crossed straight, for a curve could touch its boxes.
    for left_edge, right_edge, height in stops:
        parts.append(_curve(x, y, left_edge, height))
        parts.append(f"H{right_edge:g}")
        x = right_edge
        y = height
    parts.append(_curve(x, y, target.x - TIP, target.middle))
    return "".join(parts)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    # Between nearly equal heights a curve would look like a bent line.
    if abs(y - to_y) < 0.5:
        return f"L{to_x:g} {to_y:g}"
    half = round((to_x - x) / 2, 1)
    return f"C{x + half:g} {y:g} {to_x - half:g} {to_y:g} {to_x:g} {to_y:g}"


def back(
    source: Placed,
    target: Placed,
    lane: float,
    *,
    free_below: tuple[bool, bool],
    gap: float,
) -> str:
    """Return the path back to an earlier column, along a lane below everything.
    `free_below`: whether the space under the first and the second box is free.
    """
    is_source_free, is_target_free = free_below
    # Past other boxes the line leaves and enters at a side of its box.
    if is_source_free:
        out_x = source.centre
        start = f"M{source.centre:g} {source.bottom:g}"
    else:
        out_x = source.right + gap
        start = f"M{source.right:g} {source.middle:g}h{gap - 6:g}q6 0 6 6"
    if is_target_free:
        in_x = target.centre
        end = f"V{target.bottom + TIP:g}"
    else:
        in_x = target.x - gap
        end = f"V{target.middle + 6:g}q0 -6 6 -6H{target.x - TIP:g}"
    down = f"V{lane - 8:g}Q{out_x:g} {lane:g} {out_x - 8:g} {lane:g}"
    up = f"H{in_x + 8:g}Q{in_x:g} {lane:g} {in_x:g} {lane - 8:g}"
    return start + down + up + end


def own(box: Placed) -> str:
    """Return the path from a box to itself: an arc above it."""
    start_x = box.centre + 12
    end_x = box.centre - 12
    top = box.y
    curve = f"{start_x:g} {top - 20:g} {end_x:g} {top - 20:g} {end_x:g} {top - TIP:g}"
    return f"M{start_x:g} {top:g}C{curve}"
