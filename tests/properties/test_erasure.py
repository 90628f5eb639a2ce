"""Whatever a state looks like: erasing a path takes what stands there, and its texts
wherever else they stand; nothing else. Each leaf and each key has a mark of its own.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from checkpoints import retention, timeline, verification
from checkpoints.core.diff import written
from checkpoints.core.state_paths import ABSENT, value_at
from checkpoints.core.tombstone import TEXT, is_tombstone
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Graph, registry
from tests.properties.drawing import drawn
from tests.support import cast, erasures

pytestmark = pytest.mark.django_db(transaction=True)

SHAPES = st.recursive(
    st.sampled_from(["text", "number", "nothing"]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
NUMBERS = count(1)
"""No two marks are the same, in no two examples."""
GIVEN: dict[str, Any] = {}
"""What the nodes of the next run write."""


class State(BaseModel):
    """One channel of which something is erased, and one beside it."""

    doc: Any = None
    other: Any = None


class Input(BaseModel):
    """What the first node writes."""

    tree: Any = None


def registered() -> Graph:
    graph = Graph("erased_tree", input=Input, state=State)

    @graph.node()
    def first(state: State, ctx: Any) -> dict[str, Any]:
        return {"doc": {"was": ctx.input.tree}, "other": GIVEN["other"]}

    @graph.node()
    def second(state: State, ctx: Any) -> dict[str, Any]:
        return {"doc": {**state.doc, "new": GIVEN["new"]}}

    graph.edge(START, "first")
    graph.edge("first", "second")
    graph.edge("second", END)
    return registry.replace(graph)


def marks_of(value: Any) -> set[str]:
    return set(re.findall(r"mark_\d+_end", str(value)))


def marked(shape: Any) -> Any:
    """A value of this shape, a mark in each of its leaves and keys."""
    if isinstance(shape, dict):
        return {f"mark_{next(NUMBERS)}_end": marked(inner) for inner in shape.values()}
    if isinstance(shape, list):
        return [marked(inner) for inner in shape]
    mark = next(NUMBERS)
    return {"text": f"mark_{mark}_end", "number": 1_000_000 + mark, "nothing": None}[
        shape
    ]


def paths_of(value: Any, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    yield before
    items: Any = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for part, inner in items:
        yield from paths_of(inner, *before, part)


def texts_of(value: Any) -> set[str]:
    """The marks in leaves."""
    if isinstance(value, str):
        return marks_of(value)
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return set().union(*(texts_of(one) for one in inner))


def without(value: Any, path: tuple[str | int, ...] | None, words: set[str]) -> Any:
    """Return what must stand there afterwards. `path` is None off the way."""
    if path == ():
        return None if value is None else TEXT
    if isinstance(value, dict):
        return {
            key: without(inner, path[1:] if path and path[0] == key else None, words)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            without(thread, path[1:] if path and path[0] == n else None, words)
            for n, thread in enumerate(value)
        ]
    for word in words if isinstance(value, str) else ():
        value = value.replace(word, TEXT)
    return value


def with_plain_tombstones(value: Any) -> Any:
    if is_tombstone(value):
        return TEXT
    if isinstance(value, dict):
        return {key: with_plain_tombstones(inner) for key, inner in value.items()}
    return (
        [with_plain_tombstones(one) for one in value]
        if isinstance(value, list)
        else value
    )


def states_of(run: Run) -> list[dict[str, Any]]:
    return [timeline.state_at(row.id) for row in timeline.list_checkpoints(run.id)]


@drawn(2)
@given(
    SHAPES, SHAPES, SHAPES, st.integers(0, 99), st.lists(st.integers(0, 99), max_size=3)
)
def test_erasing_a_path_takes_what_stands_there_and_its_texts_elsewhere_and_nothing_else(
    people: cast.People, was: Any, new: Any, beside: Any, pick: int, copies: list[int]
) -> None:
    graph = registered()
    tree = marked(was)
    doc = {"was": tree, "new": marked(new)}
    texts = sorted(texts_of(doc))
    letters = [f"a letter to {texts[n % len(texts)]}, sent" for n in copies if texts]
    GIVEN.update(new=doc["new"], other={"own": marked(beside), "letters": letters})
    run = runs.advance(runs.start(graph.name, {"tree": tree}, by=people.starter).id)
    paths = [path for path in paths_of(doc) if value_at(doc, path) is not None]
    path = paths[pick % len(paths)]
    under = value_at(doc, path)
    assert under is not ABSENT
    before = states_of(run)
    known = marks_of((doc, GIVEN["other"]))

    retention.erase(run.id, [written(("doc", *path))], by=people.steward)

    assert verification.verify_run(run.id) == []
    words = texts_of(under)
    expected = []
    for state in before:
        partitions = {
            name: without(values, None, words)
            for name, values in state.items()
            if name != "scratch"
        }
        expected.append(
            {**partitions, "scratch": without(state["scratch"], ("doc", *path), words)}
        )
    after = states_of(run)
    assert with_plain_tombstones(after) == expected
    assert marks_of([state["scratch"] for state in after]) == known - marks_of(under)
    assert marks_of(erasures.everything().decode("latin-1")).isdisjoint(words)
