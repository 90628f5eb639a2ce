"""What going back in time costs: as much from the middle of a long history as of a
short one. Counted, not timed.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from bench.counting import fetched
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine import END, START, Graph
from orchestrator.engine.values import canonical
from tests.support.small_graphs import registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = 20
LONG = 400
"""Supersteps of the two histories."""


class Steps(BaseModel):
    steps: int


class State(BaseModel):
    n: int = 0
    left: int = 1
    body: str = ""


def loop() -> Graph:
    """A loop whose every visit replaces a body of 2 KB."""
    flow = Graph("costs", input=Steps, state=State)

    @flow.node()
    def step(state: State, ctx: Any) -> dict[str, Any]:
        n = state.n + 1
        return {"n": n, "left": ctx.input.steps - n, "body": f"{n:06} " * 300}

    flow.edge(START, "step")
    flow.branch(
        "step", lambda state: "on" if state.left else "off", {"on": "step", "off": END}
    )
    return registered(flow)


def history(steps: int) -> Run:
    """A run of so many supersteps."""
    run = runs.advance(runs.start(loop().name, {"steps": steps}).id)
    assert run.status == "completed"
    assert run.superstep == steps
    return run


def middle(run: Run) -> Checkpoint:
    return Checkpoint.objects.get(run=run.id, seq=run.superstep // 2)


def forked(run: Run) -> tuple[int, int]:
    """The statements of a fork with a patch from the middle and of its one superstep,
    and the bytes they fetched.
    """
    last = {"scratch": {"n": run.superstep - 1}}
    with counted() as sent, fetched.counting() as fetches:
        fork = runs.advance(runs.fork(middle(run).id, patch=last).id)
    assert fork.status == "completed"
    assert fork.superstep == run.superstep // 2 + 1
    return len(sent), fetches.bytes


def test_a_fork_and_its_first_step_take_the_same_statements_however_long_the_history_is() -> (
    None
):
    short = history(SHORT)
    long = history(LONG)
    forked(history(SHORT))  # what a process reads once
    (few, little) = forked(short)
    (many, much) = forked(long)
    assert many == few <= 40
    assert much < 1.1 * little


def test_fifty_of_many_are_listed_in_one_query_and_the_state_in_the_middle_is_one_more() -> (
    None
):
    run = history(LONG)
    with counted() as sent:
        assert len(timeline.list_checkpoints(run.id, limit=50)) == 50
    assert len(sent) == 1
    id = middle(run).id
    with counted() as sent, fetched.counting() as fetches:
        state = timeline.state_at(id)
    assert len(sent) == 1
    assert state["scratch"]["n"] == LONG // 2
    assert 0 < fetches.bytes <= 2.5 * len(canonical.encode(state))
