"""Who stands behind a value: who signed, who edited, who said that an effect had happened."""

from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.alignment import Reason
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Graph, registry
from tests.support import claims, forks
from tests.support.cast import People
from tests.support.long_runs import head_of

pytestmark = pytest.mark.django_db(transaction=True)


def signed(run: Run, by: Any, verdict: str, **more: Any) -> None:
    [request] = ApprovalRequest.objects.filter(run=run, status="open")
    rows = request.run.pending_writes.filter(revision=1).order_by("position")
    items = [{"write": str(row.write), "hash": row.hash, "verdict": "approve"} for row in rows]
    items[0] |= {"verdict": verdict, **more}
    reviews.sign(run.id, items, by=by)


@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_what_was_signed_is_blamed_on_the_settlement_with_node_and_signer(people: People, verdict: str) -> None:
    with claims.registered(claims.graph_of()):
        run = claims.paused("CLM-1", people.starter)
        edit = {"value": {"amount": "9.00", "account": "DE89"}} if verdict == "edit" else {}
        signed(run, people.reviewer, verdict, **edit)
        run = runs.advance(run.id)
        blamed = timeline.blame(head_of(run).id, "payout.amount")
    assert (blamed.checkpoint.source, blamed.node) == ("settlement", "propose")
    assert blamed.person == people.reviewer.username


def test_several_signers_are_all_named_and_a_rejected_write_is_nobodys(people: People) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-1", people.starter)
        signed(run, people.reviewer, "reject", reason="no")
        second = User.objects.create(username="second")
        second.groups.add(*people.reviewer.groups.all())
        [request] = ApprovalRequest.objects.filter(run=run, status="open")
        signed(run, second, "approve")
        run = runs.advance(run.id)
        blamed = timeline.blame(head_of(run).id, "count")
        assert blamed.person == ", ".join(sorted([people.reviewer.username, "second"]))
        assert timeline.blame(head_of(run).id, "payout").checkpoint.seq == 0


def test_a_patch_that_people_had_to_sign_names_who_signed_it(people: People) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        fork = runs.advance(forks.forked(origin, 1, {"scratch": {"letter": "Dear Rita"}}, by=people.starter).id)
        assert timeline.blame(head_of(fork).id, "letter").checkpoint.seq == 0, "it is held, so nothing set it yet"
        signed(fork, people.reviewer, "approve")
        fork = runs.advance(fork.id)
        blamed = timeline.blame(timeline.list_checkpoints(fork.id)[-2].id, "letter")
        assert (blamed.checkpoint.source, blamed.node, blamed.person) == (
            "settlement", "$patch", people.reviewer.username,
        )  # fmt: skip
        [difference] = [one for one in timeline.align(origin.id, fork.id).differences if one.path == "letter"]
        assert difference.reason == Reason("patch", (), "b")


class State(BaseModel):
    notes: Annotated[list[str], Append] = []
    paid: str = ""
    other: str = ""


class Nothing(BaseModel):
    pass


def parallel(*, unknown: bool = False) -> Graph:
    """`pay` acts outside beside `ask`, also outside, and `note`, which is pure."""
    graph = Graph("setters", input=Nothing, state=State)

    @graph.node(effect="external")
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        if unknown:
            raise ConnectionError("no answer")
        return {"paid": "yes", "notes": ["paid"]}

    @graph.node(effect="external", idempotent=True)
    def ask(state: State, ctx: Any) -> dict[str, Any]:
        return {"other": "asked"}

    @graph.node()
    def note(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": ["noted"]}

    for name in ("pay", "ask", "note"):
        graph.edge(START, name)
        graph.edge(name, END)
    registry.replace(graph)
    return graph


def test_of_parallel_nodes_those_are_left_out_whose_result_says_that_they_wrote_nothing_to_it() -> None:
    graph = parallel()
    at = head_of(runs.advance(runs.start(graph.name, {}).id)).id
    assert timeline.blame(at, "notes").node == "pay, note"
    assert timeline.blame(at, "other").node == "ask, note", "nobody knows what a pure node wrote"


def test_an_output_that_a_person_gave_names_that_person(people: People) -> None:
    graph = parallel(unknown=True)
    run = runs.advance(runs.start(graph.name, {}).id)
    assert run.status == "unknown"
    runs.settle(run.id, "pay:1:0", happened=True, output={"paid": "late"}, by=people.starter, reason="the bank says so")
    blamed = timeline.blame(head_of(runs.advance(run.id)).id, "paid")
    assert (blamed.node, blamed.person) == ("pay, note", people.starter.username)
