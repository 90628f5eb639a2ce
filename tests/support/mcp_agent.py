"""An agent that asks people through the MCP server."""

import asyncio
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import mcp
from mcp_types import ElicitResult

from orchestrator.bridges.mcp import make_server
from orchestrator.client import AsyncClient
from tests.support.bridges import Office

ITEM = {"id": "inv-1", "value": {"amount": "10.00"}, "effect": "external"}
QUESTION = {"key": "INV-1", "title": "Pay INV-1", "items": [ITEM]}


class Agent:
    """An agent of elsewhere. Each call is a session of its own, with a server of its own."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.token = office.token
        self.pages: list[str] = []
        self._pool = ThreadPoolExecutor(1)

    def call(
        self, tool: str, *, opens: bool = False, mode: str = "auto", **arguments: Any
    ) -> Any:
        """Return the answer of a tool; as a text, if it is a refusal."""

        async def see(_: Any, page: Any) -> ElicitResult:
            self.pages.append(page.url)
            return ElicitResult(action="accept" if opens else "decline")

        async def session() -> Any:
            async with AsyncClient(self.office.url, token=self.token) as client:
                server = make_server(client, ["group:payers"])
                callback = see if opens or mode == "legacy" else None
                async with mcp.Client(
                    server, mode=mode, elicitation_callback=callback
                ) as agent:
                    return await agent.call_tool(tool, arguments)

        answer = asyncio.run(session())
        if answer.is_error:
            return answer.content[0].text
        return answer

    def ask(self, **more: Any) -> "Future[Any]":
        """Ask while a worker of the site is busy elsewhere."""
        return self._pool.submit(self.call, "ask", **{**QUESTION, **more})


def content(answer: Any) -> Any:
    """Return the JSON of an answer."""
    return json.loads(answer.content[0].text)
