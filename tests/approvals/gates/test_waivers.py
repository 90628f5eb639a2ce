"""A gate that needs nobody leaves a decision by the system, in the commit that lets the
writes flow.
"""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import inbox
from approvals.models import ApprovalRequest, Decision
from checkpoints.models import RunEvent
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, registry
from tests.support.api_graphs import Claim, State
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.forging import remove, tamper

pytestmark = pytest.mark.django_db(transaction=True)


def _graph(name: str) -> Any:
    """propose, whose gate needs nobody below 100; then finish."""
    graph = Graph(name, input=Claim, state=State)

    def needed(state: State, proposal: Any) -> bool:
        return bool(proposal["payout"]["amount"] >= 100)

    @graph.node(
        effect="human", gate=Gate(reviewers=["user:rita"], needs_approval=needed)
    )
    def propose(state: State, ctx: Any) -> dict[str, Any]:
        return {"payout": {"amount": ctx.input.amount}, "letter": "Dear Marta"}

    @graph.node()
    def finish(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": ["finished"]}

    graph.edge(START, "propose")
    graph.edge("propose", "finish", when=("approved", "partial", "rejected"))
    graph.edge("finish", END)
    return registry.replace(graph)


@pytest.fixture
def passed(people: People) -> Any:
    """A run whose gate needed nobody."""
    _graph("small-claims")
    run = runs.advance(
        runs.start(
            "small-claims",
            {"claim_id": "C", "amount": 40},
            key="C-1",
            by=people.starter,
        ).id
    )
    assert run.status == "completed", run.error_code
    return run


def test_it_is_a_decision_by_the_system_on_each_write_with_what_was_and_what_came(
    passed: Any,
) -> None:
    payout, letter = Decision.objects.filter(run=passed.id).order_by("position")
    assert [
        (d.verdict, d.by, d.by_name, d.request, d.task) for d in (payout, letter)
    ] == [("not_needed", None, "", None, "propose:1:0")] * 2
    assert [
        (d.channel, read_value(d, "old_value"), read_value(d, "final_value"))
        for d in (payout, letter)
    ] == [
        ("payout", {}, {"amount": 40}),
        ("letter", "", "Dear Marta"),
    ]
    line = RunEvent.objects.get(run=passed.id, seq=payout.event_seq)
    assert line.type == "approval_not_needed"
    assert line.task == "propose:1:0"
    facts = read_value(line, "payload")
    assert facts["decisions"] == [str(payout.id), str(letter.id)]
    assert facts["superstep"] == 1
    assert len(facts["input_hash"]) == 64
    assert set(facts) == {"decisions", "superstep", "input_hash"}, (
        "no value stands in the log"
    )
    assert passed.decisions == 2
    assert verify_run(passed.id) == []


def test_nobody_is_asked_and_nothing_waits_in_an_inbox(
    passed: Any, people: People
) -> None:
    assert not ApprovalRequest.objects.filter(run=passed.id).exists()
    assert not inbox.waiting_for(people.reviewer).exists()


def test_the_api_lists_it(passed: Any, people: People) -> None:
    listed = Client(people.starter).get("runs/C-1/decisions/").json()["results"]
    assert [
        (decision["verdict"], decision["by"], decision["request"], decision["fault"])
        for decision in listed
    ] == [("not_needed", "", None, None)] * 2


def test_deleting_or_changing_it_is_named(passed: Any) -> None:
    row = Decision.objects.filter(run=passed.id).order_by("position")[0]
    tamper(row, verdict="approve")
    assert any(fault.what.endswith(str(row.id)) for fault in verify_run(passed.id))
    tamper(row, verdict="not_needed")
    assert verify_run(passed.id) == []
    remove(row)
    assert any(f"{row.id} is gone" in fault.reason for fault in verify_run(passed.id))


def test_where_it_is_needed_people_are_asked_as_ever(people: People) -> None:
    _graph("large-claims")
    run = runs.advance(
        runs.start(
            "large-claims", {"claim_id": "C", "amount": 400}, by=people.starter
        ).id
    )
    assert run.status == "paused"
    assert run.decisions == 0
    assert not Decision.objects.filter(run=run.id).exists()


def test_it_costs_one_statement_whatever_the_writes(people: People) -> None:
    _graph("counted-claims")
    run = runs.start(
        "counted-claims", {"claim_id": "C", "amount": 40}, by=people.starter
    )
    with CaptureQueriesContext(connection) as queries:
        runs.advance(run.id)
    inserts = [
        query["sql"]
        for query in queries
        if query["sql"].startswith('INSERT INTO "approvals_decision"')
    ]
    assert len(inserts) <= 1
