"""The tools of the MCP server, called with the client of its own library."""

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator import tokens
from orchestrator.client import AsyncClient
from tests.support.bridges import Office
from tests.support.processes import ROOT, environment

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import StdioServerParameters  # noqa: E402
from mcp_types import ElicitResult  # noqa: E402

from orchestrator.bridges.mcp import make_server, reviewers_of  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)
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
        self, tool: str, *, opens: bool = False, mode: str = "auto", **given: Any
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
                    return await agent.call_tool(tool, given)

        answer = asyncio.run(session())
        if answer.is_error:
            return answer.content[0].text
        return answer

    def ask(self, **more: Any) -> "Future[Any]":
        """Ask while a worker of the site is busy elsewhere."""
        return self._pool.submit(self.call, "ask", **{**QUESTION, **more})


@pytest.fixture
def agent(office: Office) -> Iterator[Agent]:
    agent = Agent(office)
    yield agent
    agent._pool.shutdown()


def content(answer: Any) -> Any:
    return json.loads(answer.content[0].text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_asks_and_reads_what_people_signed(
    office: Office, agent: Agent, mode: str
) -> None:
    asking = agent.ask(opens=True, mode=mode)
    [asked] = office.asked(1)
    shown = content(asking.result())
    assert agent.pages == [f"{office.url}/reviews/{asked.run.id}/"]
    assert shown["state"] == "open"
    assert shown["items"] == [
        {"id": "inv-1", "label": "inv-1", "verdict": "", "reason": "", "decisions": []}
    ]
    office.decide(asked, "edit", value={"amount": "9.00"}, reason="discount")
    settled = content(agent.call("status", approval="INV-1"))
    assert settled["state"] == "approved"
    [item] = settled["items"]
    assert item["value"] == {"amount": "9.00"}
    said = {"approval": "INV-1", "item": "inv-1", "result": "failed", "detail": "shut"}
    assert "stale_proposal" in agent.call("report", **said, hash="0" * 64)
    assert content(agent.call("report", **said, hash=item["hash"])) == {
        "item": "inv-1",
        "hash": item["hash"],
        "result": "failed",
        "detail": "shut",
    }
    assert office.outcomes() == ["failed"]
    [decision] = settled["items"][0]["decisions"]
    assert decision["by"] == "rita"
    refused = agent.call("receipt", decision=decision["id"])
    assert "scope" in refused
    agent.token = tokens.make_token(office.reviewer, scopes=["read", "export"])
    file = content(agent.call("receipt", decision=decision["id"]))
    assert file["payloadType"]


def test_a_question_is_asked_once_and_another_under_its_key_is_refused(
    office: Office, agent: Agent
) -> None:
    asking = agent.ask()
    [asked] = office.asked(1)
    assert agent.pages == []
    first = content(asking.result())
    assert content(agent.ask().result())["id"] == first["id"]
    dearer = [{**ITEM, "value": {"amount": "99.00"}}]
    assert "key_conflict" in agent.ask(items=dearer).result()
    office.decide(asked, "reject", reason="twice")
    [item] = content(agent.call("status", approval="INV-1"))["items"]
    assert (item["verdict"], item["reason"]) == ("rejected", "twice")
    assert "value" not in item
    assert "unknown_thing" in agent.call("status", approval="INV-2")


def test_reviewers_may_stand_apart() -> None:
    assert reviewers_of(" group:payers, user:rita,") == ["group:payers", "user:rita"]


def test_the_program_has_four_tools_and_none_decides(office: Office) -> None:
    settings = {
        "COUNTERSIGN_URL": office.url,
        "COUNTERSIGN_TOKEN": office.token,
        "COUNTERSIGN_REVIEWERS": "group:payers",
    }
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "orchestrator.bridges.mcp"],
        env=environment(**settings),
        cwd=ROOT,
    )

    async def tools() -> set[str]:
        async with mcp.Client(server) as agent:
            return {tool.name for tool in (await agent.list_tools()).tools}

    assert asyncio.run(tools()) == {"ask", "status", "report", "receipt"}
