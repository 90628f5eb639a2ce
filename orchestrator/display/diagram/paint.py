"""A drawing with colours: what has run, what is here, what waits, what was left out. Pure.

`of_graph` makes the drawing from a graph's nodes and edges; `paint` lays one moment of a run over it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.display.diagram.drawing import Box, Drawing, Link, draw, shown_links
from orchestrator.display.diagram.route import Placed
from orchestrator.engine.node import START, Edge, Node

LATE, DONE, HERE, NEXT, OFF, RUN, BAD = "later", "done", "at", "next", "off", "run", "bad"
WORDS = {
    DONE: "Completed",
    HERE: "Here",
    RUN: "Running",
    BAD: "Stopped at",
    NEXT: "Next",
    OFF: "Skipped",
    LATE: "Later",
}
"""State -> its word in the text that stands for the picture, in the order of that text."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a run stands at one checkpoint. `visits`: how often each node has started; `pending`: ids of edges."""

    visits: Mapping[str, int] = field(default_factory=dict)
    here: Collection[str] = ()
    running: Collection[str] = ()
    failed: Collection[str] = ()
    skipped: Collection[str] = ()
    pending: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    """A box as the template draws it."""

    name: str
    text: str
    effect: str
    css: str
    note: str
    place: Placed


@dataclass(frozen=True, slots=True)
class Line:
    """A line as the template draws it."""

    path: str
    css: str
    title: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the template needs, and the text that says the same."""

    width: float
    height: float
    dots: list[Dot]
    lines: list[Line]
    text: str


def of_graph(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> Drawing:
    """The drawing of a graph: the same for every checkpoint of every run of this version."""
    boxes = tuple(Box(node.name, "human" if node.gated else node.effect) for node in nodes.values())
    labels: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        labels.setdefault((edge.source, edge.target), []).append(edge.when or edge.label or "")
    links = tuple(Link(*pair, ", ".join(filter(None, dict.fromkeys(words)))) for pair, words in labels.items())
    return draw(boxes, links, tuple(edge.target for edge in edges if edge.source == START))


def plain_picture(drawing: Drawing, *, name: str) -> Picture:
    """The graph itself, apart from any run."""
    dots = [_dot(box, place, "human" if box.effect == "human" else "", "") for box, place in drawing.boxes]
    lines = [Line(route.path, "plain", _title(route.link)) for route in drawing.routes]
    names = ", ".join(box.name for box, _ in drawing.boxes)
    return Picture(drawing.width, drawing.height, dots, lines, f"Graph {name}. Nodes: {names}.")


def paint(drawing: Drawing, edges: Sequence[Edge], moment: Moment, *, title: str) -> Picture:
    """The graph at one moment of a run."""
    pending = {(edge.source, edge.target) for edge in edges if edge.id in moment.pending}
    after = {target for _, target in pending}
    states = {box.name: _state(box.name, moment, after) for box, _ in drawing.boxes}
    dots = []
    for box, place in drawing.boxes:
        times = _times(moment.visits.get(box.name, 0))
        css = f"{states[box.name]}{' human' if box.effect == 'human' else ''}"
        dots.append(_dot(box, place, css, times and f"ran{times}"))
    lines = [Line(r.path, _line(r.link, states, pending), _title(r.link)) for r in drawing.routes]
    return Picture(drawing.width, drawing.height, dots, lines, f"{title}. {' '.join(_sentences(states, moment))}")


def _state(name: str, moment: Moment, after: Collection[str]) -> str:
    for state, names in ((BAD, moment.failed), (RUN, moment.running), (HERE, moment.here), (NEXT, after)):
        if name in names:
            return state
    if moment.visits.get(name):
        return DONE
    return OFF if name in moment.skipped else LATE


def _line(link: Link, states: Mapping[str, str], pending: Collection[tuple[str, str]]) -> str:
    if (link.source, link.target) in pending:
        return "next"
    source, target = states[link.source], states[link.target]
    if OFF in (source, target):
        return "off"
    ran = (DONE, HERE, BAD, RUN)
    return "taken" if source in ran and target in ran else "later"


def _dot(box: Box, place: Placed, css: str, note: str) -> Dot:
    return Dot(box.name, shown_links(box.name), box.effect, css, note, place)


def _title(link: Link) -> str:
    return f"{link.source} to {link.target}" + (f": {link.label}" if link.label else "")


def _sentences(states: Mapping[str, str], moment: Moment) -> Iterable[str]:
    for state, word in WORDS.items():
        names = [name + _times(moment.visits.get(name, 0)) for name, found in states.items() if found == state]
        if names:
            yield f"{word}: {', '.join(names)}."


def _times(visits: int) -> str:
    return "" if visits < 2 else " twice" if visits == 2 else f" {visits} times"
