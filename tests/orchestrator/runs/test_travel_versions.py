"""Going on under another version of the graph: what its types make of a signed value must be signed as well."""

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, Write
from tests.support import cast, run_actions
from tests.support.small_graphs import Order, registered

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "retyped"
PAID: list[Any] = []


class InText(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: str = ""
    free: str = ""


class InMoney(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Decimal = Decimal(0)
    free: Decimal = Decimal(0)


def graph_with(state: type[BaseModel]) -> Graph:
    """ask (human, proposes total) -> pay (external)"""
    made = Graph(NAME, input=Order, state=state)
    gate = Gate(reviewers=["group:claims"])
    made.node("ask", effect="human", gate=gate)(lambda state, ctx: [Write("total", "010.00"), Write("free", "1")])

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        PAID.append(state.total)
        return {"notes": [f"paid {state.total}"]}

    made.node("pay", effect="external", idempotent=True)(pay)
    made.edge(START, "ask")
    made.edge("ask", "pay", when=("approved", "partial"))
    made.edge("pay", END)
    return registered(made)


@pytest.fixture
def signed(people: cast.People) -> Run:
    """A run of the version in text, whose total was signed and paid; only the version in money is registered now."""
    PAID.clear()
    graph_with(InText)
    run = runs.advance(runs.start(NAME, {}, key="signed").id)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve", "approve"])
    run = runs.advance(run.id)
    assert (run.status, PAID) == (Status.COMPLETED, ["010.00"])
    graph_with(InMoney)
    PAID.clear()
    return run


def behind_the_gate(run: Run) -> str:
    return f"{run.key}:at-2"


def test_a_signed_value_that_another_version_reads_otherwise_waits_for_the_same_signatures(
    signed: Run, people: cast.People
) -> None:
    plan = runs.plan(behind_the_gate(signed))
    assert plan.guarded == {"total": "ask"}
    made = runs.advance(runs.fork(behind_the_gate(signed), allow_effects=["pay"], by=people.starter).id)
    assert (made.status, PAID) == (Status.PAUSED, [])
    asked = ApprovalRequest.objects.get(run=made.id)
    assert (asked.node, asked.writes) == ("$patch", 1)
    assert str(read_value(asked, "why")).startswith("Version 1 of retyped reads this value otherwise")
    assert timeline.head_state(made.id)["scratch"]["total"] == "010.00", "as it was signed, until it is signed anew"
    run_actions.sign(made, people.reviewer, ["approve"])
    made = runs.advance(made.id)
    assert (made.status, PAID) == (Status.COMPLETED, [Decimal("10.00")])
    assert not list(verify_run(made.id))


def test_a_value_of_another_version_that_is_rejected_is_not_taken(signed: Run, people: cast.People) -> None:
    made = runs.advance(runs.fork(behind_the_gate(signed), allow_effects=["pay"], by=people.starter).id)
    run_actions.sign(made, people.reviewer, ["reject"])
    made = runs.advance(made.id)
    assert (made.status, PAID) == (Status.REJECTED, [])
    assert timeline.head_state(made.id)["scratch"]["total"] == "010.00"
    # To go back behind that asks anew, and takes nothing either.
    again = runs.advance(runs.fork(f"{made.key}:initial", allow_effects=["pay"], by=people.starter).id)
    assert (again.status, PAID) == (Status.PAUSED, [])


def test_a_patch_of_another_channel_of_the_gate_does_not_hide_what_the_version_changed(
    signed: Run, people: cast.People
) -> None:
    patch = {"scratch": {"free": "2.5"}}
    assert runs.plan(behind_the_gate(signed), patch=patch).guarded == {"total": "ask", "free": "ask"}
    made = runs.advance(runs.fork(behind_the_gate(signed), patch=patch, allow_effects=["pay"]).id)
    assert (made.status, ApprovalRequest.objects.get(run=made.id).writes, PAID) == (Status.PAUSED, 2, [])


def test_a_replay_under_another_version_asks_nobody(signed: Run, people: cast.People) -> None:
    assert not runs.plan(behind_the_gate(signed), "replay").guarded
    made = runs.advance(runs.replay(behind_the_gate(signed), by=people.starter).id)
    assert (made.status, PAID, ApprovalRequest.objects.filter(run=made.id).count()) == (Status.COMPLETED, [], 0)
    assert [one["task"] for one in runs.replay_report(made.id)["diverged"]] == ["pay:1:0"]
