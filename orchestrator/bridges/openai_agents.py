"""Approvals of the OpenAI Agents SDK, decided by people: tools run with the arguments that
were signed. Needs the extra `openai-agents`; docs/bridges.md has an example.
"""

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from copy import copy
from typing import Any

from agents import FunctionTool, RunState, ToolApprovalItem
from agents.tool_context import ToolContext

from orchestrator.bridges import tool_calls
from orchestrator.bridges.tool_calls import NotSigned, ToolCall
from orchestrator.client.approval import Approval, Item
from orchestrator.client.flows import Question
from orchestrator.engine.frozen import frozen

LIBRARY = "openai-agents"
_approved: ContextVar[dict[tuple[str, str, str], Item]] = ContextVar("approved")
"""What people approved for the run that goes on here: by id, tool and arguments."""


@frozen
class _SignedRunner:
    invoke: Callable[[ToolContext[Any], str], Awaitable[Any]]

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        call = (context.tool_call_id, context.tool_name, arguments)
        item = _approved.get({}).pop(call, None)
        if item is None:
            raise NotSigned(f"call {call[0]} of {call[1]} is not signed for this run")
        context.tool_arguments = json.dumps(item.value)
        output = await self.invoke(context, context.tool_arguments)
        if item.edited and isinstance(output, str):
            return f"A reviewer set the arguments {context.tool_arguments}: {output}"
        return output


def signed_tool(tool: FunctionTool) -> FunctionTool:
    """Return the tool as one that asks people, and runs with what they signed, once."""
    waiting = copy(tool)
    waiting.on_invoke_tool = _SignedRunner(tool.on_invoke_tool)
    waiting.needs_approval = True
    return waiting


def question(state: RunState[Any], *, run: str, **policy: Any) -> Question:
    """Return what `Client.ask` asks: an item for each call that waits. `run` names this run
    and no other; `policy` is that of `question_of`. Raises `NotSigned` for other tools.
    """
    calls = [_call(waiting) for waiting in state.get_interruptions()]
    return tool_calls.question_of(LIBRARY, run, calls, **policy)


def decide(state: RunState[Any], approval: Approval, *, run: str) -> None:
    """Approve and reject in the state as people did. Its tools run in this task alone.
    Raises `NotSigned`.
    """
    calls = [_call(waiting) for waiting in state.get_interruptions()]
    items = tool_calls.signed_items(LIBRARY, run, calls, approval)
    approved = {}
    for waiting, item in zip(state.get_interruptions(), items, strict=True):
        if item.approved:
            approved[item.id, item.label, waiting.arguments or ""] = item
            state.approve(waiting)
        else:
            state.reject(waiting, rejection_message=item.reason or None)
    _approved.set(approved)


def _call(waiting: ToolApprovalItem) -> ToolCall:
    for tool in waiting.agent.tools:
        is_signed = isinstance(getattr(tool, "on_invoke_tool", None), _SignedRunner)
        if isinstance(tool, FunctionTool) and is_signed and tool.name == waiting.name:
            id, arguments = waiting.call_id or "", json.loads(waiting.arguments or "{}")
            return ToolCall(id, tool.name, arguments, tool.params_json_schema)
    raise NotSigned(f"{waiting.name} of agent {waiting.agent.name} is no signed_tool")
