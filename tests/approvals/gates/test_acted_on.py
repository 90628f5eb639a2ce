"""The rounds of a gate on which a node acts."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from tests.support import cast, run_actions
from tests.support.authority_graphs import leave, pay, payments
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid() -> Iterator[list[int]]:
    with payments() as amounts:
        yield amounts


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def _looping(name: str) -> Graph:
    """`pay` pays twice on the first answer of `review`; then people are asked twice
    before it pays again.
    """
    flow = graph(name)
    gate = Gate(reviewers=["group:claims"])

    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["proposed"]}

    def what_next(state: Any) -> str:
        return {1: "again", 2: "more"}.get(state.notes.count("paid 0"), "end")

    flow.node("review", effect="human", join="any", gate=gate)(propose)
    flow.node("pay", effect="external", authority="review")(pay)
    flow.node("more")(lambda state, ctx: None)
    flow.node("later")(lambda state, ctx: None)
    flow.edge(START, "review")
    flow.edge("review", "pay")
    flow.branch("pay", what_next, {"again": "pay", "more": "more", "end": END})
    flow.edge("more", "review")
    flow.edge("more", "later")
    flow.edge("later", "review")
    flow.edge("pay", END, when="rejected")
    return flow


def test_a_node_that_loops_more_often_than_its_gate_misses_no_round(
    paid: list[int], rita: User, people: cast.People
) -> None:
    mall = run_actions.reviewer(people.second_reviewer)
    run = advanced(_looping("looping"))
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert paid == [0, 0]
    run_actions.sign_open(run, mall, "approve", requests=1)
    run_actions.sign_open(run, rita, "approve")
    leave(mall)
    run = runs.advance(run.id)
    # What mall approved was not acted on before, and would be now.
    asked_again = ApprovalRequest.objects.get(run=run, status="open", node="pay")
    assert asked_again.task == "pay:3:0"
    assert verify_run(run.id) == []


def test_a_round_that_was_acted_on_need_not_count_again(
    paid: list[int], rita: User, people: cast.People
) -> None:
    mall = run_actions.reviewer(people.second_reviewer)
    run = advanced(_looping("looping_on"))
    run_actions.sign_open(run, mall, "approve")
    run = runs.advance(run.id)
    leave(mall)
    run_actions.sign_open(run, rita, "approve", requests=1)
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(paid) == 4
    assert verify_run(run.id) == []
