"""The plan of going on from a point: what it says of loops, open supersteps and versions."""

import pytest

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Task
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim, paid
from tests.support.small_graphs import advanced, graph, registered
from tests.support.statements import counted

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


def test_what_another_fork_of_the_same_point_has_done_would_happen_again(people: cast.People) -> None:
    registered(claim("siblings"))
    run = runs.advance(runs.start("siblings", {}, key="siblings").id)
    PAID.clear()
    rita = run_actions.reviewer(people.reviewer)

    def forked(checkpoint: str) -> Run:
        return runs.advance(runs.fork(checkpoint, answers={"ask": {"total": 10}}, by=rita).id)

    assert not runs.plan(f"{run.key}:at-2").effects_again
    first = forked(f"{run.key}:at-2")
    assert (first.status, len(PAID)) == (Status.COMPLETED, 1)
    second = forked(f"{run.key}:at-2")
    assert (second.status, second.at_node, len(PAID)) == (Status.PAUSED, "pay", 1)
    # Whoever goes back in the origin itself, or in a fork of a fork, is told as well.
    assert runs.plan(f"{run.key}:at-2", "rewind").needs_yes == ["pay"]
    below = runs.fork(f"{second.key}:initial", by=people.starter)
    assert runs.plan(f"{below.key}:initial").needs_yes == ["pay"]


def test_what_another_fork_has_done_is_not_told_where_the_way_is_past_it(people: cast.People) -> None:
    run = paid("past_it", people)
    early = runs.fork(f"{run.key}:at-2", answers={"ask": {"total": 10}}, allow_effects=["pay"], by=people.reviewer)
    assert (runs.advance(early.id).status, len(PAID)) == (Status.COMPLETED, 2)
    last = max(run.checkpoints.values_list("seq", flat=True))
    assert not runs.plan(f"{run.key}:at-{last}").effects_again
    assert [task.node for task in runs.plan(f"{run.key}:at-{last - 1}").effects_again] == ["pay"]


def test_the_effects_of_many_forks_are_read_in_as_many_statements_as_those_of_one(people: cast.People) -> None:
    run = paid("many_forks", people)
    sent = []
    for _ in range(2):
        for _ in range(3):
            runs.fork(f"{run.key}:at-2", by=people.starter)
        with counted() as statements:
            runs.plan(f"{run.key}:at-2")
        sent.append(len(statements))
    assert sent[0] == sent[1]
