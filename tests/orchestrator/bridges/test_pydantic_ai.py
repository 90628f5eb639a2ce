"""An agent of pydantic-ai whose tools wait for people: what runs is what was signed."""

from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")

from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from orchestrator.bridges.pydantic_ai import outcomes, question, results
from orchestrator.bridges.tool_calls import NotSigned
from orchestrator.client import Client, KeyConflict
from tests.orchestrator.client.conftest import Sign

REVIEWERS = ["group:payers"]
CALLS = [
    ToolCallPart("pay", {"invoice": "a", "amount": 10}, "call-1"),
    ToolCallPart("pay", {"invoice": "b", "amount": 20}, "call-2"),
]
Paid = list[tuple[str, int]]


def payer(paid: Paid, calls: list[ToolCallPart] = CALLS) -> Agent[None, Any]:
    """Return an agent that makes these calls, and then repeats what came of them."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returns = [
            p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)
        ]
        if returns:
            return ModelResponse([TextPart("; ".join(str(p.content) for p in returns))])
        return ModelResponse(list(calls))

    agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(invoice: str, amount: int) -> str:
        paid.append((invoice, amount))
        return f"paid {amount}"

    return agent


class Saved:
    """What a process leaves behind at its pause: JSON alone."""

    def __init__(self, agent: Agent[None, Any]) -> None:
        result = agent.run_sync("Pay the invoices.")
        self.messages = result.all_messages_json()
        self.requests = TypeAdapter(DeferredToolRequests).dump_json(result.output)

    def restored(self) -> tuple[list[ModelMessage], DeferredToolRequests]:
        messages = ModelMessagesTypeAdapter.validate_json(self.messages)
        requests = TypeAdapter(DeferredToolRequests).validate_json(self.requests)
        return messages, requests


def test_a_call_runs_after_a_restart_with_what_was_signed(
    client: Client, sign: Sign
) -> None:
    paid: Paid = []
    agent = payer(paid)
    saved = Saved(agent)
    _, requests = saved.restored()
    asked = client.ask(
        **question(requests, run="r-1", agent=agent, reviewers=REVIEWERS)
    )
    sign(
        asked.id,
        {"verdict": "edit", "value": {"invoice": "a", "amount": 8}},
        {"verdict": "reject", "reason": "paid already"},
    )
    # The process has ended; another one goes on.
    del agent, requests
    agent = payer(paid)
    messages, requests = saved.restored()
    approval = client.wait(asked.key)
    result = agent.run_sync(
        message_history=messages,
        deferred_tool_results=results(requests, approval, run="r-1"),
    )
    assert paid == [("a", 8)]
    assert result.output == "paid 8; paid already"
    assert outcomes(result.all_messages(), approval) == {"call-1": ("done", "")}
    print(asked)
