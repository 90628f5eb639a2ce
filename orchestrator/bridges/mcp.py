"""MCP: a server with which an agent asks people and reads what they decided; it has no
tool that decides. `python -m orchestrator.bridges.mcp`, docs/mcp.md.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestURLParams, InputRequiredResult

from orchestrator.client import ApiError, Approval, AsyncClient, NotAllowed, NotFound
from orchestrator.client.exchange import Call

ASK = """Ask people to decide on items, each {"id", "value", "label", "schema", "effect"}.
`key` names the question: asked again with it, it is the same approval. Then call
`status` until it is decided, and act on approved items only, with the value there."""
STATUS = """Where an approval stands, by its id or key, and the verdict on each item."""
RECEIPT = """Who decided on an item of an approval, when and why, with the signed file."""
MODERN = "2026-07-28"
"""The first version of the protocol in which a result asks for input."""


def make_server(client: AsyncClient, reviewers: Sequence[str]) -> MCPServer:
    """Return the server. People are chosen here, not by the agent."""
    server = MCPServer("countersign")

    async def answered(flow: Any) -> Any:
        try:
            return await flow
        except (ApiError, ValueError) as error:
            raise ToolError(str(error)) from error

    @server.tool(description=ASK, structured_output=False)
    async def ask(ctx: Context, key: str, title: str, items: list[dict[str, Any]]) -> Any:
        question = client.ask(key=key, title=title, items=items, reviewers=reviewers)
        approval: Approval = await answered(question)
        for _ in range(20):  # within five seconds a worker has opened it
            if approval.url:
                break
            await asyncio.sleep(0.25)
            approval = await answered(client.approval(approval.id))
        if approval.url and not approval.decided and ctx.input_responses is None:
            return await _shown(ctx, approval) or _standing(approval)
        return _standing(approval)

    @server.tool(description=STATUS, structured_output=False)
    async def status(approval: str) -> Any:
        return _standing(await answered(client.approval(approval)))

    @server.tool(description=RECEIPT, structured_output=False)
    async def receipt(approval: str, item: str) -> Any:
        raw = (await answered(client.approval(approval))).raw
        [*rows] = [row["decisions"] for row in raw["items"] if row["id"] == item]
        decisions = []
        for decision in rows[0] if rows else ():
            path = f"decisions/{decision['id']}/receipt/"
            try:
                file = await client.send(Call[Any]("GET", path))
            except (NotAllowed, NotFound):
                file = None  # it is for who signed, and for auditors
            decisions.append({**decision, "file": file})
        return decisions

    return server


async def _shown(ctx: Context, approval: Approval) -> InputRequiredResult | None:
    """Have the page of the review opened, by a client that can. Its answer is no verdict."""
    elicitation = ctx.client_capabilities and ctx.client_capabilities.elicitation
    if not elicitation or elicitation.url is None:
        return None
    title = approval.title
    if (ctx.protocol_version or "") < MODERN:
        await ctx.elicit_url(title, approval.url, approval.id)
        return None
    page = ElicitRequestURLParams(message=title, url=approval.url)
    return InputRequiredResult(input_requests={"review": ElicitRequest(params=page)})


def _standing(approval: Approval) -> dict[str, Any]:
    items = []
    for item in approval.items:
        row = {"id": item.id, "verdict": item.verdict, "reason": item.reason}
        # What nobody has signed is no value to act on.
        items.append({**row, "value": item.value} if item.approved else row)
    facts = {"id": approval.id, "key": approval.key, "state": approval.state}
    return {**facts, "review": approval.url, "items": items}


if __name__ == "__main__":
    url, token = os.environ["COUNTERSIGN_URL"], os.environ["COUNTERSIGN_TOKEN"]
    people = os.environ["COUNTERSIGN_REVIEWERS"].split(",")
    make_server(AsyncClient(url, token=token), people).run("stdio")
