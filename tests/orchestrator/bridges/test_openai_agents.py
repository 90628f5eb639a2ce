"""Approvals of the OpenAI Agents SDK: its tools refuse what was not signed."""

import asyncio

import pytest

from orchestrator.client import KeyConflict
from orchestrator.engine import NotDone
from tests.support.agents import REVIEWERS, TWO, Calls, Shop
from tests.support.bridges import Office
from tests.support.tool_calls import APPROVE, REJECT, edit, sign

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, AgentsException, UserError, function_tool  # noqa: E402

from orchestrator.bridges.openai_agents import decide, question, signed_tool  # noqa: E402
from orchestrator.bridges.tool_calls import NotSigned  # noqa: E402
from tests.support.agents.openai_agents import Payer, Scripted  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)

LIE: Calls = [("pay", {"invoice": "a", "amount": 9999}), TWO[1]]


def test_other_arguments_under_the_same_ids_are_refused(office: Office) -> None:
    office.client.ask(**Payer().pause().question())
    liar = Payer(LIE).pause()
    with pytest.raises(KeyConflict):
        office.client.ask(**liar.question())


def test_what_was_not_signed_never_runs(office: Office) -> None:
    asked = office.client.ask(**Payer().pause().question())
    approval = sign(office, asked, APPROVE, APPROVE)
    liar = Payer(LIE).pause()
    with pytest.raises(NotSigned):
        liar.go_on(approval)
    assert liar.shop.paid == []


def test_the_model_hears_of_an_edit(office: Office) -> None:
    payer = Payer(TWO[:1]).pause()
    approval = sign(
        office, office.client.ask(**payer.question()), edit(invoice="a", amount=8)
    )
    text = payer.go_on(approval)
    assert text == (
        'A reviewer set the arguments {"amount": 8, "invoice": "a"}: paid 8'
    )


def test_a_state_that_somebody_else_approved_runs_nothing() -> None:
    payer = Payer().pause()

    async def approve_and_go_on() -> None:
        state = await payer.state()
        for waiting in state.get_interruptions():
            state.approve(waiting, always_approve=True)
        await payer.end(state)

    with pytest.raises(UserError, match="is not signed for this run"):
        asyncio.run(approve_and_go_on())
    assert payer.shop.paid == []


def test_a_signature_runs_its_tool_once(office: Office) -> None:
    payer = Payer().pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE, REJECT)

    async def go_on_twice() -> None:
        state, again = await payer.state(), await payer.state()
        decide(state, approval, run=payer.run)
        await payer.end(state)
        for waiting in again.get_interruptions():
            again.approve(waiting)
        await payer.end(again)

    with pytest.raises(UserError, match="is not signed for this run"):
        asyncio.run(go_on_twice())
    assert payer.shop.paid == [("a", 10)]


def test_a_state_that_changed_after_the_decision_runs_nothing(office: Office) -> None:
    payer = Payer(TWO[:1]).pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE)
    honest = payer.left
    payer.left = honest.replace(r"\"amount\": 10", r"\"amount\": 9999")
    assert payer.left != honest

    async def decide_and_swap() -> None:
        lying = await payer.state()
        payer.left = honest
        decide(await payer.state(), approval, run=payer.run)
        for waiting in lying.get_interruptions():
            lying.approve(waiting)
        await payer.end(lying)

    with pytest.raises(AgentsException):
        asyncio.run(decide_and_swap())
    assert payer.shop.paid == []


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (NotDone("no such account"), "failed", "no such account"),
        (TimeoutError("token=s3cret"), "unknown", "TimeoutError"),
    ],
)
def test_an_error_that_becomes_an_output_is_no_success(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    outcome: str,
    detail: str,
) -> None:
    def pay(self: Shop, invoice: str, amount: int) -> str:
        raise error

    monkeypatch.setattr(Shop, "pay", pay)
    payer = Payer(TWO[:1]).pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE)
    said = payer.go_on(approval, (office.url, office.token))
    assert said.startswith("An error occurred")
    assert (office.outcomes(), office.details()) == ([outcome], [detail])


def test_an_error_that_ends_the_run_is_reported(office: Office) -> None:
    payer = Payer(TWO[:1])

    def pay(invoice: str, amount: int) -> str:
        raise TimeoutError

    tool = signed_tool(function_tool(pay, failure_error_function=None))
    payer.agent = Agent("payer", model=Scripted(TWO[:1]), tools=[tool])
    payer.pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE)
    with pytest.raises(AgentsException):
        payer.go_on(approval, (office.url, office.token))
    assert office.outcomes() == ["unknown"]


def test_a_tool_that_would_run_unsigned_is_not_asked_about() -> None:
    payer = Payer()
    plain = function_tool(payer.shop.pay, needs_approval=True)
    payer.agent = Agent("payer", model=Scripted(TWO), tools=[plain])
    state = asyncio.run(payer.pause().state())
    with pytest.raises(NotSigned, match="pay of agent payer is no signed_tool"):
        question(state, run="r-1", reviewers=REVIEWERS)


def test_the_tool_of_the_caller_stays_as_it_is() -> None:
    tool = function_tool(Payer().shop.pay)
    invoke = tool.on_invoke_tool
    assert signed_tool(tool).needs_approval is True
    assert tool.needs_approval is False
    assert tool.on_invoke_tool is invoke
