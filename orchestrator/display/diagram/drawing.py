"""A graph in, a drawing out: the same drawing for every checkpoint of a run. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.display.diagram import layers, order, place, route
from orchestrator.display.diagram.order import Cell, Columns
from orchestrator.display.diagram.route import Placed, Stop

HEIGHT, PITCH, THIN = 30, 44, 24
GAP, MARGIN = 36, 10
LANE = 18
LETTER, ROOM = 6.95, 40
"""Width of a letter of the mono face at 11.5 px, and what the mark and the padding take."""


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


@lru_cache(maxsize=64)
def draw(boxes: tuple[Box, ...], links: tuple[Link, ...], starts: tuple[str, ...]) -> Drawing:
    """The drawing. Links to or from a name that is no box (the ends of the graph) are left out."""
    names = [box.name for box in boxes]
    known = set(names)
    links = tuple(link for link in links if link.source in known and link.target in known)
    pairs = [(link.source, link.target) for link in links]
    backward = layers.loops(names, pairs, [name for name in starts if name in known])
    column = layers.layer_columns(names, [pair for pair in pairs if pair not in backward])
    cells, joints = _cells(names, links, column, backward)
    ordered = order.order(cells, joints)
    left, right = order.neighbours(joints)
    y = place.heights(ordered, left, right, pitch=PITCH, thin=THIN)
    return _assemble(boxes, links, ordered, y)


def _cells(
    names: Sequence[str], links: Sequence[Link], column: dict[str, int], backward: set[layers.Pair]
) -> tuple[list[list[Cell]], list[order.Joint]]:
    cells: list[list[Cell]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for name in names:
        cells[column[name]].append(name)
    joints: list[order.Joint] = []
    for number, link in enumerate(links):
        if (link.source, link.target) in backward:
            continue
        before: Cell = link.source
        for between in range(column[link.source] + 1, column[link.target]):
            cells[between].append((number, between))
            joints.append((before, (number, between)))
            before = (number, between)
        joints.append((before, link.target))
    return cells, joints


def _assemble(boxes: Sequence[Box], links: Sequence[Link], columns: Columns, y: dict[Cell, float]) -> Drawing:
    top = MARGIN + (22 if any(link.source == link.target for link in links) else 0)
    placed: dict[str, Placed] = {}
    stops: dict[int, list[Stop]] = defaultdict(list)
    last: set[str] = set()
    x = float(MARGIN)
    for cells in columns:
        letters = [max(len(shown_links(cell)), 5) for cell in cells if isinstance(cell, str)]
        width: float = round(ROOM + LETTER * max(letters)) if letters else 20.0
        for cell in cells:
            if isinstance(cell, str):
                placed[cell] = Placed(cell, x, y[cell] + top, width, HEIGHT)
            else:
                stops[cell[0]].append((x, x + width, y[cell] + top + HEIGHT / 2))
        if cells and isinstance(cells[-1], str):
            last.add(cells[-1])
        x += width + GAP
    routes, bottom = _routes(links, placed, stops, last)
    return Drawing(round(x - GAP + MARGIN, 1), bottom + MARGIN, tuple((b, placed[b.name]) for b in boxes), routes)


def shown_links(name: str) -> str:
    """A name as it fits into a box."""
    return name if len(name) <= 26 else f"{name[:25]}…"


def _routes(
    links: Sequence[Link], placed: dict[str, Placed], stops: dict[int, list[Stop]], last: set[str]
) -> tuple[tuple[Route, ...], float]:
    bottom = max((box.bottom for box in placed.values()), default=0.0)
    lane = max([bottom, *(height for line in stops.values() for _, _, height in line)])
    routes = []
    for number, link in enumerate(links):
        source, target = placed[link.source], placed[link.target]
        if link.source == link.target:
            path = route.own(source)
        elif target.x > source.x:
            path = route.forward(source, target, stops[number])
        else:
            lane += LANE
            bottom = lane
            free = (link.source in last, link.target in last)
            path = route.back(source, target, lane, free_below=free, gap=GAP / 2 - 6)
        routes.append(Route(link, path))
    return tuple(routes), bottom
