"""The human in the loop of LangChain's agents, in both of its modes."""

import pytest

from tests.support.bridges import Office
from tests.support.tool_calls import APPROVE, edit, sign

pytest.importorskip("langchain", reason="the extra `langchain` is not installed")

from orchestrator.bridges.tool_calls import NotSigned  # noqa: E402
from orchestrator.engine.errors import InvalidValue  # noqa: E402
from tests.support.agents.langchain import Payer, PayerPerCall  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[Payer, PayerPerCall])
def payer(request: pytest.FixtureRequest) -> Payer:
    new: Payer = request.param()
    return new


def test_the_model_hears_of_an_edit(office: Office, payer: Payer) -> None:
    asked = office.client.ask(**payer.pause().question())
    text = payer.go_on(sign(office, asked, edit(invoice="a", amount=8), APPROVE))
    assert "a human reviewer replaced this tool call" in text
    assert sorted(payer.shop.paid) == [("a", 8), ("b", 20)]


def test_nobody_can_edit_what_the_middleware_would_not_edit(
    office: Office, payer: Payer
) -> None:
    payer.allowed = ("approve", "reject")
    asked = office.client.ask(**payer.pause().question())
    assert asked.raw["items"][0]["schema"] == {"const": {"invoice": "a", "amount": 10}}
    with pytest.raises(InvalidValue):
        sign(office, asked, edit(invoice="a", amount=8), APPROVE)
    payer.go_on(sign(office, asked, APPROVE, APPROVE))
    assert sorted(payer.shop.paid) == [("a", 10), ("b", 20)]


def test_other_messages_in_the_thread_run_nothing(office: Office, payer: Payer) -> None:
    asked = office.client.ask(**payer.pause().question())
    approval = sign(office, asked, APPROVE, APPROVE)
    message = payer.snapshot().values["messages"][-1]
    message.tool_calls[0]["args"] = {"invoice": "a", "amount": 9999}
    payer.graph().update_state(payer.config, {"messages": [message]}, as_node="model")
    with pytest.raises(NotSigned):
        payer.go_on(approval)
    assert payer.shop.paid == []
