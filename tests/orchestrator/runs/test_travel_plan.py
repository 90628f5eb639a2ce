"""The plan of going on from a point: what it says of loops, open supersteps and versions."""

import pytest

from checkpoints.core.status import Status
from orchestrator import runs
from orchestrator.engine import END, START, Task
from tests.support import cast
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_a_router_decides_may_run(people: cast.People) -> None:
    made = graph("routed")
    for name in "abc":
        made.node(name)(lambda state, ctx: None)
    made.edge(START, "a")
    made.branch("a", lambda state: "b", {"b": "b", "c": "c"})
    made.edge("b", END)
    made.edge("c", END)
    run = advanced(made)
    plan = runs.plan(f"{run.key}:initial")
    assert ([task.node for task in plan.runs], [task.node for task in plan.may_run]) == (["a"], ["b", "c"])


def test_visits_are_counted_on_from_the_point(people: cast.People) -> None:
    made = graph("looped")
    made.node("a")(lambda state, ctx: {"total": state.total + 1})
    made.edge(START, "a")
    made.branch("a", lambda state: "again" if state.total < 4 else "end", {"again": "a", "end": END})
    run = advanced(made)
    assert runs.plan(f"{run.key}:step-2").runs == (Task("a", 3, 0),)


def test_memory_that_landed_would_be_written_again(people: cast.People) -> None:
    made = graph("landed")

    def keep(state: object, ctx: object) -> None:
        ctx.memory.put("k", "v", "space")  # type: ignore[attr-defined]

    made.node("keep")(keep)
    made.edge(START, "keep")
    made.edge("keep", END)
    run = advanced(made)
    assert run.status == Status.COMPLETED
    plan = runs.plan(f"{run.key}:initial")
    assert (plan.effects_again, plan.notes["effects_again"]) == ((Task("keep", 1, 0),), {"keep:1:0": "memory"})
