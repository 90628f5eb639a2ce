"""An agent of pydantic-ai, which leaves its messages and its requests, both as JSON."""

from typing import Any, Self

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

from orchestrator.bridges import reports
from orchestrator.bridges.pydantic_ai import (
    outcomes,
    question,
    results,
    schemas_of,
)
from orchestrator.client import Approval, Client
from tests.support.agents import REVIEWERS, TWO, Calls, Shop, Site

REQUESTS = TypeAdapter(DeferredToolRequests)


class Payer:
    """Its tool calls have the ids call-1, call-2, …"""

    def __init__(self, calls: Calls = TWO, run: str = "r-1") -> None:
        self.calls = calls
        self.run = run
        self.shop = Shop()
        self.left = (b"", b"")
        self.messages: list[ModelMessage] = []
        self.agent: Agent[None, Any] = Agent(
            scripted(calls), output_type=[str, DeferredToolRequests]
        )
        for tool in (self.shop.pay, self.shop.refund):
            self.agent.tool_plain(requires_approval=True)(tool)

    def pause(self) -> Self:
        result = self.agent.run_sync("Pay the invoices.")
        self.left = result.all_messages_json(), REQUESTS.dump_json(result.output)
        return self

    def restarted(self) -> Self:
        later = type(self)(self.calls, self.run)
        later.shop.paid = self.shop.paid
        later.left = self.left
        return later

    def question(self) -> Any:
        schemas = schemas_of(self.agent)
        return question(
            *self.waiting(), run=self.run, reviewers=REVIEWERS, schemas=schemas
        )

    def go_on(self, approval: Approval, _: Site | None = None) -> str:
        messages, requests = self.waiting()
        deferred = results(messages, requests, approval, run=self.run)
        result = self.agent.run_sync(
            message_history=messages, deferred_tool_results=deferred
        )
        self.messages = result.all_messages()
        return str(result.output)

    def report(self, client: Client, approval: Approval) -> None:
        reports.report(client, approval, outcomes(self.messages, approval))

    def waiting(self) -> tuple[list[ModelMessage], DeferredToolRequests]:
        messages, requests = self.left
        return (
            ModelMessagesTypeAdapter.validate_json(messages),
            REQUESTS.validate_json(requests),
        )


def scripted(calls: Calls = TWO[:1]) -> FunctionModel:
    """Return a model that makes these calls, and then repeats what came of them."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        returns = [part for part in parts if isinstance(part, ToolReturnPart)]
        if returns:
            return ModelResponse([TextPart("; ".join(str(p.content) for p in returns))])
        numbered = enumerate(calls, start=1)
        return ModelResponse([ToolCallPart(*call, f"call-{n}") for n, call in numbered])

    return FunctionModel(answer)
