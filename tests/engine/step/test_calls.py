"""Calls that people let run: what is planned, and what their settlement makes of the
frontier.
"""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import NotDone, Task, play
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.frontier import Frontier, Part
from orchestrator.engine.step.output import WriteValue, call_output, output_of
from orchestrator.engine.step.plan import begin, ending, plan
from orchestrator.engine.step.reduce import Result, Settled, reduce_step, settle_step
from tests.support.call_graphs import (
    Payment,
    call_gate,
    calls,
    paying,
    paying_beside,
    paying_many,
)

ARGS = {"payee": "ada", "amount": "10"}
PAY = Task("pay", 1, 0)
APPROVED = Settled(PAY, (WriteValue("$call", ARGS),), "approved")


def waiting() -> tuple[Any, Any]:
    """The compiled graph, and the step after which its call waits."""
    compiled = compile(paying())
    planned = plan(compiled, begin(compiled))
    proposal = call_output(compiled, "pay", Payment(payee="ada", amount=Decimal(10)))
    results = {PAY: Result(proposal, gated=True)}
    return compiled, reduce_step(compiled, planned, compiled.fresh_state(), results)


def test_a_proposed_call_is_one_write_of_its_arguments() -> None:
    _, step = waiting()
    assert [(write.channel, write.value) for write in step.held] == [("$call", ARGS)]
    assert step.frontier.gated() == {PAY}


def test_an_approval_starts_the_same_task_and_changes_no_channel() -> None:
    compiled, step = waiting()
    settled = settle_step(compiled, step.frontier, step.state, [APPROVED])
    assert settled.changes == {}
    assert settled.frontier.tokens == {}
    assert settled.frontier.ready_calls() == {PAY: Part("call")}
    (start,) = plan(compiled, settled.frontier).starts
    assert (start.task, start.is_call) == (PAY, True)


def test_the_edges_of_a_call_follow_when_it_has_run() -> None:
    compiled, step = waiting()
    settled = settle_step(compiled, step.frontier, step.state, [APPROVED])
    planned = plan(compiled, settled.frontier)
    output = output_of(compiled, "pay", {"notes": ["paid"]})
    ran = reduce_step(compiled, planned, step.state, {PAY: Result(output)})
    assert ran.frontier.waiting == {}
    assert ran.frontier.tokens == {"pay>paid!approved": 1}


def test_a_rejected_call_takes_the_edge_of_a_rejection() -> None:
    compiled, step = waiting()
    rejected = Settled(PAY, (), "rejected")
    settled = settle_step(compiled, step.frontier, step.state, [rejected])
    assert settled.frontier.tokens == {"pay>refused!rejected": 1}


def test_an_approved_call_that_needs_a_yes_waits_for_it() -> None:
    compiled, step = waiting()
    settled = settle_step(compiled, step.frontier, step.state, [APPROVED])
    assert plan(compiled, settled.frontier, stops=["pay"]).starts == ()
    assert ending(compiled, settled.frontier) == "paused"


def test_a_waiting_call_keeps_what_it_was_prepared_from() -> None:
    part = Part("gated", payload={"to": "ada"})
    frontier = Frontier(waiting={"pay:1": (part,)})
    assert Frontier.from_json(frontier.to_json()) == frontier


def test_no_node_writes_the_channel_of_calls() -> None:
    compiled = compile(paying())
    with pytest.raises(InvalidValue, match="no channel"):
        output_of(compiled, "pay", {"$call": ARGS})


class Other(BaseModel):
    wrong: int


@pytest.mark.parametrize("prepared", [None, Other(wrong=1), {"payee": "ada"}, "ada"])
def test_arguments_that_do_not_fit_fail_the_task_by_name(prepared: Any) -> None:
    graph = paying(node={"prepare": lambda state, ctx: prepared})
    played = play(graph, {})
    assert played.status == "failed"
    assert played.error is not None
    assert "node pay, channel $call" in played.error.message


def approve(request: Any) -> dict[int, Any]:
    return {0: "approve"}


def test_a_played_call_runs_with_what_was_approved() -> None:
    with calls() as made_calls:
        assert play(paying(), {}).status == "paused"
        assert made_calls == []
        played = play(paying(), {}, decisions=approve)
        assert played.state.notes == ["paid 10 to ada", "paid"]
        edit = {"payee": "bob", "amount": "2"}
        played = play(paying(), {}, decisions=lambda request: {0: ("edit", edit)})
        assert played.state.notes == ["paid 2 to bob", "paid"]
        played = play(paying(), {}, decisions=lambda request: {0: "reject"})
        assert played.state.notes == ["refused"]


def test_a_played_call_sees_the_state_from_which_it_was_prepared() -> None:
    with calls() as made_calls:
        play(paying_beside(), {}, decisions=approve)
        assert [amount for _, amount, _ in made_calls] == [Decimal(10)]


def test_each_send_is_played_as_a_call_with_its_payload() -> None:
    with calls() as made_calls:
        play(paying_many(), {}, decisions=approve)
        assert [args.payee for args, _, _ in made_calls] == ["ada", "bob", "cyd"]


def test_a_played_call_that_needs_nobody_runs_at_once() -> None:
    gate = call_gate(needs_approval=lambda state, proposal: proposal.args.amount > 50)
    with calls():
        assert play(paying(gate=gate), {}).state.notes == ["paid 10 to ada", "paid"]


def test_title_and_facts_read_the_arguments() -> None:
    gate = call_gate(title="Pay {args.payee} {args.amount}?")
    played = play(paying(gate=gate), {})
    assert played.gates[0].title == "Pay ada 10?"


def test_a_call_without_a_label_is_named_by_its_node() -> None:
    played = play(paying(gate=call_gate(writes={})), {})
    assert played.gates[0].writes[0].label == "pay"


def test_a_call_that_fails_takes_its_error_edge() -> None:
    def fails(state: Any, ctx: Any) -> None:
        raise NotDone("closed")

    graph = paying(fn=fails)
    graph.node("report")(lambda state, ctx: {"notes": [ctx.error.node]})
    graph.edge("pay", "report", when="error")
    graph.edge("report", "END")
    assert play(graph, {}, decisions=approve).state.notes == ["pay"]
