"""The drawing of a graph, the same for every checkpoint of a run. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.display.diagram import layers, order, place, route
from orchestrator.display.diagram.order import Cell, Columns
from orchestrator.display.diagram.route import Placed, Stop

HEIGHT = 30
PITCH = 44
THIN = 24
GAP = 36
MARGIN = 10
LANE = 18
ROOM_FOR_OWN = 22
"""Height above the boxes for links that lead from a box to itself."""
LETTER = 6.95
"""Width of a letter of the mono face at 11.5 px."""
ROOM = 40
"""Width that the mark and the padding of a box take."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node as the drawing needs it."""

    name: str
    effect: str = "pure"


@dataclass(frozen=True, slots=True)
class Link:
    """An edge as the drawing needs it; `label` is its outcome or its branch's label."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A link and its path."""

    link: Link
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything placed. Sizes are CSS pixels."""

    width: float
    height: float
    boxes: tuple[tuple[Box, Placed], ...]
    routes: tuple[Route, ...]


# Each page of each run of a version shows the same drawing.
@lru_cache(maxsize=64)
def draw(
    boxes: tuple[Box, ...],
    links: tuple[Link, ...],
    starts: tuple[str, ...],
) -> Drawing:
    """Return the drawing. Links to or from a name that is no box (the ends of the
    graph) are left out.
    """
    names = [box.name for box in boxes]
    present = set(names)
    drawn_links: list[Link] = []
    for link in links:
        if link.source in present and link.target in present:
            drawn_links.append(link)
    pairs = [(link.source, link.target) for link in drawn_links]
    present_starts = [name for name in starts if name in present]

    # Links that close a loop take no part in the layout.
    backward = layers.loops(names, pairs, present_starts)
    forward = [pair for pair in pairs if pair not in backward]
    column_of = layers.layer_columns(names, forward)
    columns, joints = _cells(names, drawn_links, column_of, backward)
    ordered = order.order(columns, joints)
    left_of, right_of = order.neighbours(joints)
    heights = place.heights(ordered, left_of, right_of, pitch=PITCH, thin=THIN)
    return _assemble(boxes, drawn_links, ordered, heights)


def _cells(
    names: Sequence[str],
    links: Sequence[Link],
    column_of: dict[str, int],
    backward: set[layers.Pair],
) -> tuple[list[list[Cell]], list[order.Joint]]:
    """Return the cells of each column, and the joints between neighbouring columns."""
    last_column = max(column_of.values(), default=-1)
    columns: list[list[Cell]] = [[] for _ in range(last_column + 1)]
    for name in names:
        columns[column_of[name]].append(name)

    joints: list[order.Joint] = []
    for number, link in enumerate(links):
        if (link.source, link.target) in backward:
            continue
        # A long link has a cell in each column that it passes through.
        before: Cell = link.source
        for between in range(column_of[link.source] + 1, column_of[link.target]):
            passing = (number, between)
            columns[between].append(passing)
            joints.append((before, passing))
            before = passing
        joints.append((before, link.target))
    return columns, joints


def _assemble(
    boxes: Sequence[Box],
    links: Sequence[Link],
    columns: Columns,
    heights: dict[Cell, float],
) -> Drawing:
    """Return the drawing with boxes of these heights, column after column."""
    top = MARGIN
    if any(link.source == link.target for link in links):
        top += ROOM_FOR_OWN

    placed: dict[str, Placed] = {}
    stops: dict[int, list[Stop]] = defaultdict(list)
    lowest: set[str] = set()
    x = float(MARGIN)
    # A column is as wide as its longest name, and passing lines cross all of it.
    for cells in columns:
        width = _width(cells)
        for cell in cells:
            y = heights[cell] + top
            if isinstance(cell, str):
                placed[cell] = Placed(cell, x, y, width, HEIGHT)
            else:
                link_number, _ = cell
                stops[link_number].append((x, x + width, y + HEIGHT / 2))
        # Below the last box of a column nothing is in the way of a line back.
        if cells and isinstance(cells[-1], str):
            lowest.add(cells[-1])
        x += width + GAP

    routes, bottom = _routes(links, placed, stops, lowest)
    placed_boxes = tuple((box, placed[box.name]) for box in boxes)
    width_of_all = round(x - GAP + MARGIN, 1)
    return Drawing(width_of_all, bottom + MARGIN, placed_boxes, routes)


def _width(cells: Sequence[Cell]) -> float:
    """Return the width of a column: that of its longest name, or of a passing line."""
    names = [cell for cell in cells if isinstance(cell, str)]
    if not names:
        return 20.0
    letters = max(len(fitted_name(name)) for name in names)
    return round(ROOM + LETTER * max(letters, 5))


def fitted_name(name: str) -> str:
    """Return a name, cut to fit into a box."""
    if len(name) <= 26:
        return name
    return f"{name[:25]}…"


def _routes(
    links: Sequence[Link],
    placed: dict[str, Placed],
    stops: dict[int, list[Stop]],
    lowest: set[str],
) -> tuple[tuple[Route, ...], float]:
    """Return the paths of the links, and the height below which nothing is drawn.
    `lowest`: the boxes under which nothing stands.
    """
    bottom = max((box.bottom for box in placed.values()), default=0.0)
    # The first lane back lies below every box and every passing line.
    lane = bottom
    for stops_of_link in stops.values():
        for _, _, height in stops_of_link:
            lane = max(lane, height)

    routes: list[Route] = []
    for number, link in enumerate(links):
        source = placed[link.source]
        target = placed[link.target]
        if link.source == link.target:
            path = route.own(source)
        elif target.x > source.x:
            path = route.forward(source, target, stops[number])
        else:
            lane += LANE
            bottom = lane
            free = (link.source in lowest, link.target in lowest)
            path = route.back(source, target, lane, free_below=free, gap=GAP / 2 - 6)
        routes.append(Route(link, path))
    return tuple(routes), bottom
