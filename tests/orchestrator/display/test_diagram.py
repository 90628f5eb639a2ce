"""The drawing of a graph: nothing overlaps, loops are drawn, and the words say what the
colours say.
"""

import re
from itertools import combinations

import pytest

from orchestrator.display.diagram import Box, Drawing, Link, draw, paint
from orchestrator.display.diagram.route import Placed
from tests.support import claims


def drawing(*pairs: str) -> Drawing:
    """A drawing of links written `a>b`; the first name is where it starts."""
    links = tuple(Link(*pair.split(">")) for pair in pairs)
    names = dict.fromkeys(name for link in links for name in (link.source, link.target))
    return draw(tuple(Box(name) for name in names), links, (next(iter(names)),))


def places(diagram: Drawing) -> dict[str, Placed]:
    return {box.name: place for box, place in diagram.boxes}


WIDE = [f"start>n{n}" for n in range(12)] + [f"n{n}>end" for n in range(12)]
LONG = [f"n{n}>n{n + 1}" for n in range(300)]
LOOPED = ["a>b", "b>c", "c>b", "c>a", "c>d", "d>d", "a>d"]
CLAIM = [
    "read>assess",
    "assess>photos",
    "photos>assess",
    "assess>screen",
    "screen>small",
    "screen>large",
    "screen>refuse",
]


@pytest.mark.parametrize("pairs", [WIDE, LONG, LOOPED, CLAIM, ["a>b"]])
def test_no_box_stands_on_another_and_all_are_on_the_page(pairs: list[str]) -> None:
    diagram = drawing(*pairs)
    boxes = list(places(diagram).values())
    for left, right in combinations(boxes, 2):
        apart = (
            left.right <= right.x
            or right.right <= left.x
            or left.bottom <= right.y
            or right.bottom <= left.y
        )
        assert apart, (left, right)
    assert all(box.x >= 0 and box.y >= 0 for box in boxes)
    assert all(
        box.right <= diagram.width and box.bottom <= diagram.height for box in boxes
    )


def test_links_lead_from_left_to_right_except_those_that_close_a_loop() -> None:
    at = places(drawing(*LOOPED))
    assert at["a"].x < at["b"].x < at["c"].x < at["d"].x


def test_every_link_has_a_path_even_one_to_itself() -> None:
    diagram = drawing(*LOOPED)
    assert len(diagram.routes) == len(LOOPED)
    assert all(route.path.startswith("M") for route in diagram.routes)


def test_a_long_link_passes_between_the_boxes_of_the_columns_it_crosses() -> None:
    diagram = drawing("a>b", "b>c", "c>d", "a>d")
    at = places(diagram)
    path = next(route.path for route in diagram.routes if route.link == Link("a", "d"))
    crossing = [float(height) for height in re.findall(r"([\d.]+)H", path)]
    assert len(crossing) == 2
    for name in ("b", "c"):
        assert all(not at[name].y < height < at[name].bottom for height in crossing)


def test_the_same_graph_is_always_drawn_the_same() -> None:
    draw.cache_clear()
    first = drawing(*CLAIM)
    draw.cache_clear()
    assert drawing(*CLAIM) == first


def test_links_to_the_ends_of_the_graph_are_not_drawn() -> None:
    diagram = draw((Box("a"),), (Link("START", "a"), Link("a", "END")), ("a",))
    assert diagram.routes == ()


def test_a_moment_is_told_in_colours_and_in_words() -> None:
    from orchestrator.engine.graphs.compile import compile

    compiled = compile(claims.graph_of())
    moment = paint.RunMoment(
        visits={"read": 2, "propose": 1},
        here=["propose"],
        skipped=["refuse"],
        pending=["propose>pay!approved"],
    )
    picture = paint.paint(
        paint.of_graph(compiled.nodes, compiled.edges),
        compiled.edges,
        moment,
        title="Now",
    )
    css = {dot.name: dot.css for dot in picture.dots}
    assert css == {
        "read": "done",
        "propose": "at human",
        "pay": "next",
        "refuse": "off",
    }
    assert (
        picture.text
        == "Now. Completed: read twice. Here: propose. Next: pay. Skipped: refuse."
    )
    assert {line.title.partition(":")[0]: line.css for line in picture.lines} == {
        "read to propose": "taken",
        "propose to pay": "next",
        "propose to refuse": "off",
    }
