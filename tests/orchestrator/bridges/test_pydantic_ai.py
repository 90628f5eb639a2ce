"""Deferred tools of pydantic-ai: what lies about its calls runs nothing."""

from typing import Any

import pytest

from orchestrator.client import KeyConflict
from tests.support.agents import REVIEWERS, TWO, Shop
from tests.support.bridges import Office
from tests.support.tool_calls import APPROVE, REJECT, sign

pytest.importorskip("pydantic_ai", reason="the extra `pydantic-ai` is not installed")

from pydantic_ai import Agent, DeferredToolRequests, ModelRetry  # noqa: E402
from pydantic_ai.exceptions import ToolFailed  # noqa: E402
from pydantic_ai.models.test import TestModel  # noqa: E402

from orchestrator.bridges.pydantic_ai import (  # noqa: E402
    outcomes,
    question,
    schemas_of,
)
from orchestrator.bridges.tool_calls import NotSigned  # noqa: E402
from tests.support.agents.pydantic_ai import Payer  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)

LIES: dict[str, Any] = {
    "an amount": [("pay", {"invoice": "a", "amount": 9999}), TWO[1]],
    "a type": [("pay", {"invoice": "a", "amount": 10.0}), TWO[1]],
    "a tool": [("refund", {"invoice": "a", "amount": 10}), TWO[1]],
    "the order": [TWO[1], TWO[0]],
    "one more": [*TWO, TWO[0]],
    "one less": TWO[:1],
}


def test_other_arguments_under_the_same_ids_are_refused(office: Office) -> None:
    office.client.ask(**Payer().pause().question())
    liar = Payer(LIES["an amount"]).pause()
    with pytest.raises(KeyConflict):
        office.client.ask(**liar.question())


def test_what_was_not_signed_never_runs(office: Office) -> None:
    asked = office.client.ask(**Payer().pause().question())
    approval = sign(office, asked, APPROVE, APPROVE)
    for lie in LIES.values():
        liar = Payer(lie).pause()
        with pytest.raises(NotSigned):
            liar.go_on(approval)
        assert liar.shop.paid == []


def test_messages_that_lie_about_the_requests_run_nothing(office: Office) -> None:
    payer = Payer().pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE, APPROVE)
    messages, requests = payer.left
    payer.left = messages.replace(b'"amount":10', b'"amount":9999'), requests
    assert payer.left[0] != messages
    with pytest.raises(NotSigned):
        payer.go_on(approval)
    assert payer.shop.paid == []


def test_requests_that_lie_change_nothing_of_what_runs(office: Office) -> None:
    payer = Payer().pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE, REJECT)
    messages, requests = payer.left
    payer.left = messages, requests.replace(b'"amount":10', b'"amount":9999')
    assert payer.left[1] != requests
    payer.go_on(approval)
    assert payer.shop.paid == [("a", 10)]


def test_the_outcome_of_what_was_approved_can_be_reported(office: Office) -> None:
    payer = Payer().pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE, REJECT)
    payer.go_on(approval)
    assert outcomes(payer.messages, approval) == {"call-1": ("done", "")}


@pytest.mark.parametrize(
    ("error", "result"), [(ModelRetry, "unknown"), (ToolFailed, "failed")]
)
def test_a_tool_that_asks_for_another_try_may_have_acted(
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    result: str,
) -> None:
    def pay(self: Shop, invoice: str, amount: int) -> str:
        raise error("the bank is closed")

    monkeypatch.setattr(Shop, "pay", pay)
    payer = Payer(TWO[:1]).pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE)
    payer.go_on(approval)
    payer.report(office.client, approval)
    assert office.outcomes() == [result]


def test_a_call_that_was_done_before_is_reported_no_more(office: Office) -> None:
    payer = Payer(TWO[:1]).pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE)
    payer.go_on(approval)
    payer.report(office.client, approval)
    later = payer.restarted()
    approval = office.client.approval(approval.id)
    later.go_on(approval)
    assert outcomes(later.messages, approval) == {}


def test_an_agent_that_waits_for_nobody_asks_nobody() -> None:
    with pytest.raises(ValueError, match="waits for nobody"):
        question([], DeferredToolRequests(), run="r-1", reviewers=REVIEWERS)


def test_a_call_that_runs_elsewhere_is_no_item() -> None:
    payer = Payer().pause()
    messages, requests = payer.waiting()
    requests.calls = [requests.approvals.pop()]
    asked = question(messages, requests, run="r-1", reviewers=REVIEWERS)
    assert [item["id"] for item in asked["items"]] == ["call-1"]


def test_tools_behind_a_toolset_have_their_schemas() -> None:
    payer = Payer()
    agent = Agent(
        TestModel(), toolsets=[ts.approval_required() for ts in payer.agent.toolsets]
    )
    assert schemas_of(agent).keys() == {"pay", "refund"}


def test_a_call_with_the_id_of_an_earlier_one_has_no_signature() -> None:
    earlier, _ = Payer().pause().waiting()
    messages, requests = Payer().pause().waiting()
    with pytest.raises(NotSigned, match="earlier"):
        question([*earlier, *messages], requests, run="r-1", reviewers=REVIEWERS)
