"""A drawing with colours: the nodes that have run, that are current, that wait, and
that were skipped. Pure.

`of_graph` makes the drawing from a graph's nodes and edges; `paint` lays one moment of
a run over it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.display.diagram.drawing import (
    Box,
    Drawing,
    Link,
    draw,
    fitted_name,
)
from orchestrator.display.diagram.route import Placed
from orchestrator.engine.graphs.node import START, Edge, Node

LATE = "later"
DONE = "done"
HERE = "at"
NEXT = "next"
OFF = "off"
RUN = "run"
BAD = "bad"
WORDS = {
    DONE: "Completed",
    HERE: "Here",
    RUN: "Running",
    BAD: "Stopped at",
    NEXT: "Next",
    OFF: "Skipped",
    LATE: "Later",
}
"""State -> its word in the text that stands for the picture, in the order of that text.
"""


@dataclass(frozen=True, slots=True)
class RunMoment:
    """The position of a run at one checkpoint. `visits`: how often each node has started;
    `pending`: ids of edges.
    """

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
class DrawnLine:
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
    lines: list[DrawnLine]
    text: str


def of_graph(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> Drawing:
    """Return the drawing of a graph: the same for every checkpoint of every run of this
    version.
    """
    boxes: list[Box] = []
    for node in nodes.values():
        boxes.append(Box(node.name, "human" if node.gated else node.effect))

    # Several edges between two nodes are one line with all their labels.
    labels_by_pair: dict[tuple[str, str], dict[str, None]] = {}
    for edge in edges:
        labels = labels_by_pair.setdefault((edge.source, edge.target), {})
        label = edge.when or edge.label
        if label:
            labels[label] = None
    links: list[Link] = []
    for (source, target), labels in labels_by_pair.items():
        links.append(Link(source, target, ", ".join(labels)))

    starts = tuple(edge.target for edge in edges if edge.source == START)
    return draw(tuple(boxes), tuple(links), starts)


def plain_picture(drawing: Drawing, *, name: str) -> Picture:
    """Return the graph itself, apart from any run."""
    dots: list[Dot] = []
    for box, place in drawing.boxes:
        css = "human" if box.effect == "human" else ""
        dots.append(_dot(box, place, css, ""))
    lines = [
        DrawnLine(route.path, "plain", _title(route.link)) for route in drawing.routes
    ]
    names = ", ".join(box.name for box, _ in drawing.boxes)
    text = f"Graph {name}. Nodes: {names}."
    return Picture(drawing.width, drawing.height, dots, lines, text)


def paint(
    drawing: Drawing,
    edges: Sequence[Edge],
    moment: RunMoment,
    *,
    title: str,
) -> Picture:
    """Return the graph at one moment of a run."""
    pending: set[tuple[str, str]] = set()
    for edge in edges:
        if edge.id in moment.pending:
            pending.add((edge.source, edge.target))
    # A node comes next where a token waits in front of it.
    next_nodes = {target for _, target in pending}
    states: dict[str, str] = {}
    for box, _ in drawing.boxes:
        states[box.name] = _state(box.name, moment, next_nodes)

    dots: list[Dot] = []
    for box, place in drawing.boxes:
        css = states[box.name]
        if box.effect == "human":
            css += " human"
        times = _times(moment.visits.get(box.name, 0))
        dots.append(_dot(box, place, css, f"ran{times}" if times else ""))
    lines: list[DrawnLine] = []
    for route in drawing.routes:
        css = _style_of_line(route.link, states, pending)
        lines.append(DrawnLine(route.path, css, _title(route.link)))

    text = f"{title}. {' '.join(_sentences(states, moment))}"
    return Picture(drawing.width, drawing.height, dots, lines, text)


def _state(name: str, moment: RunMoment, next_nodes: Collection[str]) -> str:
    """Return the state of a node: the first of these that applies."""
    current_states = (
        (BAD, moment.failed),
        (RUN, moment.running),
        (HERE, moment.here),
        (NEXT, next_nodes),
    )
    for state, names in current_states:
        if name in names:
            return state
    if moment.visits.get(name):
        return DONE
    if name in moment.skipped:
        return OFF
    return LATE


def _style_of_line(
    link: Link,
    states: Mapping[str, str],
    pending: Collection[tuple[str, str]],
) -> str:
    """Return the CSS class of a line, by what the nodes at its ends have done."""
    if (link.source, link.target) in pending:
        return "next"
    source = states[link.source]
    target = states[link.target]
    if OFF in (source, target):
        return "off"
    # Lines are not counted: one counts as taken where the nodes at both ends ran.
    ran = (DONE, HERE, BAD, RUN)
    if source in ran and target in ran:
        return "taken"
    return "later"


def _dot(box: Box, place: Placed, css: str, note: str) -> Dot:
    return Dot(
        box.name,
        text=fitted_name(box.name),
        effect=box.effect,
        css=css,
        note=note,
        place=place,
    )


def _title(link: Link) -> str:
    ends = f"{link.source} to {link.target}"
    if not link.label:
        return ends
    return f"{ends}: {link.label}"


def _sentences(states: Mapping[str, str], moment: RunMoment) -> Iterator[str]:
    """Yield a sentence for each state that some node is in."""
    for state, word in WORDS.items():
        names: list[str] = []
        for name, state_of_node in states.items():
            if state_of_node == state:
                names.append(name + _times(moment.visits.get(name, 0)))
        if names:
            yield f"{word}: {', '.join(names)}."


def _times(visits: int) -> str:
    """Return how often a node ran, in words; empty for once and never."""
    if visits < 2:
        return ""
    if visits == 2:
        return " twice"
    return f" {visits} times"
