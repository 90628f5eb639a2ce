"""The tools of the MCP server, called with the client of its own library."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from orchestrator import tokens
from orchestrator.client import Client
from tests.support.bridges import Office
from tests.support.cast import People
from tests.support.processes import ROOT, environment

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import StdioServerParameters  # noqa: E402

from orchestrator.bridges.mcp import reviewers_of  # noqa: E402
from tests.support.mcp_agent import ITEM, Agent, content  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def agent(office: Office) -> Iterator[Agent]:
    agent = Agent(office)
    yield agent
    agent._pool.shutdown()


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


def test_what_another_account_asked_has_no_value_to_act_on(
    office: Office, agent: Agent, people: People
) -> None:
    token = tokens.make_token(people.steward, scopes=["start", "read"])
    other = Client(office.url, token=token)
    other.ask(key="INV-1", title="Harmless", items=[ITEM], reviewers=["group:payers"])
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    [item] = content(agent.call("status", approval="INV-1"))["items"]
    assert item["verdict"] == "approved"
    assert not {"value", "hash"} & item.keys()


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
