"""An agent of the OpenAI Agents SDK, which leaves its state as JSON."""

import asyncio
import json
from typing import Any, Self

from agents import (
    Agent,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    Usage,
    function_tool,
)
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from orchestrator.bridges.openai_agents import decide, question, signed_tool
from orchestrator.client import Approval, AsyncClient, Client
from tests.support.agents import REVIEWERS, TWO, Calls, Shop, Site

QUIET = RunConfig(tracing_disabled=True)


class Scripted(Model):
    """A model that makes these calls, and then repeats what came of them."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    async def get_response(
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> Any:
        items = [] if isinstance(input, str) else input
        outputs = [i for i in items if i.get("type") == "function_call_output"]
        if outputs:
            return _response(_message("; ".join(str(o["output"]) for o in outputs)))
        calls = enumerate(self.calls, start=1)
        return _response(*(_call(n, *call) for n, call in calls))

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def _response(*output: Any) -> ModelResponse:
    return ModelResponse(output=[*output], usage=Usage(), response_id=None)


def _call(number: int, name: str, arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call",
        call_id=f"call-{number}",
        name=name,
        arguments=json.dumps(arguments),
    )


def _message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="m-1", type="message", role="assistant", status="completed", content=[part]
    )


class Payer:
    """Its tool calls have the ids call-1, call-2, …"""

    def __init__(self, calls: Calls = TWO, run: str = "r-1") -> None:
        self.calls = calls
        self.run = run
        self.shop = Shop()
        self.left = ""
        tools = [function_tool(self.shop.pay), function_tool(self.shop.refund)]
        signed = [signed_tool(tool) for tool in tools]
        self.agent = Agent("payer", model=Scripted(calls), tools=[*signed])

    def pause(self) -> Self:
        async def pause() -> str:
            result = await Runner.run(self.agent, "Pay.", run_config=QUIET)
            return json.dumps(result.to_state().to_json())

        self.left = asyncio.run(pause())
        return self

    def restarted(self) -> Self:
        later = type(self)(self.calls, self.run)
        later.shop.paid = self.shop.paid
        later.left = self.left
        return later

    def question(self) -> Any:
        state = asyncio.run(self.state())
        return question(state, run=self.run, reviewers=REVIEWERS)

    def go_on(self, approval: Approval, site: Site | None = None) -> str:
        async def go_on(client: AsyncClient | None) -> str:
            state = await self.state()
            decide(state, approval, run=self.run, client=client)
            return await self.end(state)

        async def report_and_go_on() -> str:
            if site is None:
                return await go_on(None)
            url, token = site
            async with AsyncClient(url, token=token) as client:
                return await go_on(client)

        return asyncio.run(report_and_go_on())

    def report(self, client: Client, approval: Approval) -> None:
        """Do nothing: each tool reports how it ended."""

    async def state(self) -> RunState[Any]:
        return await RunState.from_json(self.agent, json.loads(self.left))

    async def end(self, state: RunState[Any]) -> str:
        result = await Runner.run(self.agent, state, run_config=QUIET)
        return str(result.final_output)


def scripted() -> Scripted:
    """Return the model of an example, which makes one call."""
    return Scripted(TWO[:1])
