"""MCP: a server with which an agent asks people and reads what they decided; it has no
tool that decides. `python -m orchestrator.bridges.mcp`, docs/mcp.md.
"""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestURLParams, InputRequiredResult

from orchestrator.client import ApiError, Approval, AsyncClient
from orchestrator.client.exchange import Call, part

LOOKS = 20
"""So often is a new question looked at, in five seconds, until people can see it."""

SHOWN = ("id", "label", "verdict", "reason", "decisions")
MODERN = "2026-07-28"
"""The first version of the protocol in which a result asks for input."""


def make_server(client: AsyncClient, reviewers: Sequence[str]) -> MCPServer:
    """Return the server. People are chosen here, not by the agent."""
    server = MCPServer("countersign")

    @server.tool(structured_output=False)
    async def ask(
        ctx: Context, key: str, title: str, items: list[dict[str, Any]]
    ) -> Any:
        """Ask people to decide on items: {"id", "value", "label", "schema", "effect"}.
        Again with the same `key` it is the same approval. Call `status` until it is
        decided, and act on approved items only, with the value that stands there.
        """
        question: dict[str, Any] = {"key": key, "title": title, "items": items}
        approval = await _answer(client.ask(**question, reviewers=reviewers))
        for _ in range(LOOKS):
            if not approval.url:
                await asyncio.sleep(0.25)
                approval = await _answer(client.approval(approval.id))
        if approval.url and not approval.decided and ctx.input_responses is None:
            return await _shown(ctx, approval) or _standing(approval)
        return _standing(approval)

    @server.tool(structured_output=False)
    async def status(approval: str) -> Any:
        """Return where an approval stands, by its id or key, and each verdict."""
        return _standing(await _answer(client.approval(approval)))

    @server.tool(structured_output=False)
    async def report(
        approval: str, item: str, hash: str, result: str, detail: str = ""
    ) -> Any:
        """Report what came of an approved item: done, failed, or unknown if you cannot
        say. `hash` is the one that stood beside the value on which you acted.
        """
        outcome = {
            "item": item,
            "hash": hash,
            "result": result,
            "detail": detail,
        }
        path = f"approvals/{part(approval)}/outcomes/"
        call: Call[Any] = Call("POST", path, body={"outcomes": [outcome]})
        await _answer(client.send(call))
        return outcome

    @server.tool(structured_output=False)
    async def receipt(decision: str) -> Any:
        """Return the signed file of one decision; `status` has their ids."""
        call: Call[Any] = Call("GET", f"decisions/{part(decision)}/receipt/")
        return await _answer(client.send(call))

    return server


def reviewers_of(text: str) -> list[str]:
    """Return the reviewers of a list with commas, around which there may be spaces."""
    names = []
    for name in text.split(","):
        stripped = name.strip()
        if stripped:
            names.append(stripped)
    return names


async def _answer(flow: Awaitable[Any]) -> Any:
    try:
        return await flow
    except (ApiError, ValueError) as error:
        raise ToolError(str(error)) from error


async def _shown(ctx: Context, approval: Approval) -> InputRequiredResult | None:
    """Ask a client that can to open the page of the review. Its answer is no verdict."""
    elicitation = ctx.client_capabilities and ctx.client_capabilities.elicitation
    if not elicitation or elicitation.url is None:
        return None
    title = approval.title
    version = ctx.protocol_version or ""
    if version < MODERN:
        await ctx.elicit_url(title, approval.url, approval.id)
        return None
    page = ElicitRequestURLParams(message=title, url=approval.url)
    request = ElicitRequest(params=page)
    return InputRequiredResult(input_requests={"review": request})


def _standing(approval: Approval) -> dict[str, Any]:
    signed = {}
    # Another account may have asked under this key with a misleading title.
    if approval.raw["is_own"]:
        signed = {item.id: item.value for item in approval.approved_items}
    items = []
    for item in approval.raw["items"]:
        row = {name: item[name] for name in SHOWN}
        # What nobody has signed is no value to act on.
        if item["id"] in signed:
            row["value"] = signed[item["id"]]
            row["hash"] = item["hash"]
        items.append(row)
    return {
        "id": approval.id,
        "key": approval.key,
        "state": approval.state,
        "review": approval.url,
        "items": items,
    }


if __name__ == "__main__":
    url = os.environ["COUNTERSIGN_URL"]
    token = os.environ["COUNTERSIGN_TOKEN"]
    people = reviewers_of(os.environ["COUNTERSIGN_REVIEWERS"])
    client = AsyncClient(url, token=token)
    server = make_server(client, people)
    server.run("stdio")
