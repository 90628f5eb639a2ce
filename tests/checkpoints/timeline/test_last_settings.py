"""What set a channel last is found without reading what lies between."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from checkpoints import timeline
from checkpoints.models import Checkpoint
from orchestrator import runs
from orchestrator.engine import END, START, Graph
from tests.support.small_graphs import registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = 105
LONG = 1005


class State(BaseModel):
    left: int = 1
    case: dict[str, Any] = {}
    never: str = "default"


class Steps(BaseModel):
    steps: int


def history(steps: int) -> Checkpoint:
    """The last checkpoint of a run that sets its case in the first superstep only."""
    flow = Graph(
        "set_once", input=Steps, state=State, max_supersteps=2 * LONG, snapshot=10
    )

    @flow.node()
    def first(state: State, ctx: Any) -> dict[str, Any]:
        return {"case": {"amount": 7}, "left": ctx.input.steps - 1}

    @flow.node()
    def count(state: State, ctx: Any) -> dict[str, Any]:
        return {"left": state.left - 1}

    flow.edge(START, "first")
    flow.edge("first", "count")
    flow.branch(
        "count",
        lambda state: "on" if state.left else "off",
        {"on": "count", "off": END},
    )
    registered(flow)
    run = runs.advance(runs.start(flow.name, {"steps": steps}).id)
    assert run.superstep == steps
    return timeline.get_checkpoint(f"{run.key}:at-{steps}")


@contextmanager
def entered() -> Iterator[list[str]]:
    """The names of the functions that are entered, in order."""
    names: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


def costs(at: Checkpoint, path: str) -> tuple[int, int]:
    """The functions that a blame enters, and the statements that it sends."""
    timeline.blame(at.id, path)
    with entered() as names:
        timeline.blame(at.id, path)
    with counted() as sent:
        timeline.blame(at.id, path)
    return len(names), len(sent)


def test_what_was_set_at_the_first_step_is_blamed_at_the_same_cost_however_long_ago() -> (
    None
):
    short = history(SHORT)
    long = history(LONG)
    for path in ("case", "case.amount", "never"):
        functions_of_short, statements_of_short = costs(short, path)
        functions_of_long, statements_of_long = costs(long, path)
        # PostgreSQL's driver takes a few functions more for greater numbers.
        assert functions_of_long <= functions_of_short + 20
        assert statements_of_long == statements_of_short <= 6
    blamed = timeline.blame(long.id, "case.amount")
    assert blamed.checkpoint.seq == 1
    assert blamed.node == "first"
    assert timeline.blame(long.id, "never").checkpoint.seq == 0
