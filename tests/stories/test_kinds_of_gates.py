"""Gates of every kind in one graph: before a node runs and after it, questions, several
at once, in loops and in fan-outs.
"""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Send, Write
from tests.support import cast, run_actions
from tests.support.call_graphs import call_gate, calls, noting, paying
from tests.support.run_actions import pending, sign, state
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def review(**options: Any) -> Gate:
    return Gate(**{"reviewers": ["group:claims"], **options})


def all_kinds(name: str = "all_kinds") -> Graph:
    """A call and a proposal with a question wait side by side; `done` waits for both."""
    flow = paying(name, gate=call_gate(skip=True))

    def propose(state: Any, ctx: Any) -> list[Write]:
        ctx.ask("amount", "How much?")
        return [Write("notes", ["proposed"])]

    flow.node("propose", effect="human", gate=review())(propose)
    flow.node("done")(lambda state, ctx: {"notes": [f"amount {state.amount}"]})
    flow.edge(START, "propose")
    flow.edge("propose", "done")
    flow.edge("paid", "done")
    flow.edge("done", END)
    return flow


def waiting(run: Run) -> list[tuple[str, str]]:
    rows = ApprovalRequest.objects.filter(run=run, status="open").order_by("node")
    return [(row.node, row.kind) for row in rows]


def test_gates_before_and_after_a_node_wait_side_by_side_and_a_join_for_both(
    rita: User,
) -> None:
    with calls() as made_calls:
        run = advanced(all_kinds())
        assert waiting(run) == [("pay", "call"), ("propose", "writes")]
        # In order: the call, the proposal, the question.
        sign(run, rita, ["approve", None, None])
        run = runs.advance(run.id)
        assert (run.status, len(made_calls)) == (Status.PAUSED, 1)
        assert waiting(run) == [("propose", "writes")]
        sign(run, rita, [None, "approve", ("edit", "7")])
        run = runs.advance(run.id)
        # The call saw the amount that it was prepared from.
        assert made_calls[0][1] == Decimal(10)
    assert run.status == Status.COMPLETED
    assert sorted(state(run)["notes"]) == [
        "amount 7",
        "paid",
        "paid 10 to ada",
        "proposed",
    ]
    assert state(run)["notes"][-1] == "amount 7"
    assert verify_run(run.id) == []


def test_all_of_them_are_decided_in_one_act(rita: User) -> None:
    with calls() as made_calls:
        run = advanced(all_kinds("all_at_once"))
        receipt = sign(run, rita, ["skip", "reject", ("edit", "7")])
        assert {line["result"] for line in receipt.lines} == {"counted"}
        run = runs.advance(run.id)
        assert (run.status, made_calls) == (Status.COMPLETED, [])
    assert state(run)["notes"] == ["paid", "amount 7"]
    assert verify_run(run.id) == []


def test_the_join_behind_them_runs_as_often_whoever_is_decided_first(
    rita: User,
) -> None:
    with calls():
        run = advanced(all_kinds("other_order"))
        sign(run, rita, [None, "approve", ("edit", "7")])
        run = runs.advance(run.id)
        assert waiting(run) == [("pay", "call")]
        sign(run, rita, ["skip", None, None])
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"].count("amount 7") == 1
    assert verify_run(run.id) == []


def test_a_loop_goes_through_gates_of_each_kind_at_each_visit(rita: User) -> None:
    flow = all_kinds("looping")
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "done"]

    def again(state: Any) -> str:
        return "again" if state.amount < 5 else "over"

    flow.node("both", sends=["pay", "propose"])(
        lambda state, ctx: [Send("pay"), Send("propose")]
    )
    flow.branch("done", again, {"again": "both", "over": END})
    flow.edge("both", END)
    with calls() as list_of_calls:
        run = advanced(flow)
        sign(run, rita, ["approve", "approve", ("edit", "1")])
        run = runs.advance(run.id)
        assert waiting(run) == [("pay", "call"), ("propose", "writes")]
        for row in ApprovalRequest.objects.filter(run=run, status="open"):
            assert row.visit == 2
        verdicts: list[Any] = []
        for row in pending(run):
            is_new = row.visit == 2
            answer = {"$call": "skip", "notes": "approve"}.get(row.channel)
            verdicts.append((answer or ("edit", "9")) if is_new else None)
        sign(run, rita, verdicts)
        run = runs.advance(run.id)
        assert (run.status, len(list_of_calls)) == (Status.COMPLETED, 1)
    assert state(run)["notes"][-1] == "amount 9"
    assert verify_run(run.id) == []


def test_a_fan_out_of_nothing_asks_nobody_and_the_run_says_so(
    client: Client, people: cast.People
) -> None:
    flow = all_kinds("nothing_to_ask")
    flow.edges[:] = [edge for edge in flow.edges if edge.source != START]
    flow.node("split", sends=["pay", "propose"])(lambda state, ctx: [])
    flow.edge(START, "split")
    flow.node("nobody")(noting("nobody was asked"))
    flow.edge("split", "nobody")
    flow.edge("nobody", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["nobody was asked"]
    assert not ApprovalRequest.objects.filter(run=run).exists()
    client.force_login(people.steward)
    answer = client.get(f"/api/v1/checkpoints/{run.head}/").json()
    assert {"pay", "propose", "done"} <= {*answer["skipped"]}
    assert verify_run(run.id) == []
