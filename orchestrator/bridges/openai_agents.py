"""Tools of the OpenAI Agents SDK run with what people signed: docs/bridges.md."""

import json
from asyncio import CancelledError
from contextvars import ContextVar
from copy import copy
from typing import Any

from agents import FunctionTool, RunState, ToolApprovalItem
from agents.tool import (
    ToolErrorFunction,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from orchestrator.bridges import tool_calls
from orchestrator.bridges.reports import DONE, Outcome, outcome_of, report_async
from orchestrator.bridges.tool_calls import NotSigned, ToolCall
from orchestrator.client import AsyncClient
from orchestrator.client.approval import Approval, Item
from orchestrator.client.flows import Question
from orchestrator.engine.frozen import frozen

LIBRARY = "openai-agents"
_approved: ContextVar[Any] = ContextVar("approved")
"""What people approved for the run that goes on here: by id, tool and arguments."""


_end: ContextVar[Outcome] = ContextVar("end")
"""How the tool that runs here has ended."""


@frozen
class _Signed:
    """A call that may run, and who hears how it ended."""

    item: Item
    approval: Approval
    client: AsyncClient | None

    async def report(self, outcome: Outcome) -> None:
        """Report the outcome, if there is a client for it."""
        if self.client is not None:
            await report_async(self.client, self.approval, {self.item.id: outcome})


@frozen
class _SignedRunner:
    invoke: Any

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        call = (context.tool_call_id, context.tool_name, arguments)
        signed_call = _approved.get({}).pop(call, None)
        if signed_call is None:
            raise NotSigned(f"call {call[0]} of {call[1]} is not signed for this run")
        item = signed_call.item
        signed = json.dumps(item.value)
        context.tool_arguments = signed
        _end.set(DONE)
        try:
            output = await self.invoke(context, signed)
        # Cancelled, too, it may have acted.
        except (Exception, CancelledError) as error:
            await signed_call.report(outcome_of(error))
            raise
        await signed_call.report(_end.get())
        if item.edited and isinstance(output, str):
            return f"A reviewer set the arguments {signed}: {output}"
        return output


def signed_tool(tool: FunctionTool) -> FunctionTool:
    """Return the tool as one that asks people, and runs with what they signed, once."""
    acting = copy(tool)
    formatter = resolve_function_tool_failure_error_function(tool)
    if formatter is not None:
        noting = _noting(formatter)
        set_function_tool_failure_error_function(acting, noting)
    waiting = copy(tool)
    waiting.on_invoke_tool = _SignedRunner(acting.on_invoke_tool)
    waiting.needs_approval = True
    return waiting


def _noting(formatter: ToolErrorFunction) -> ToolErrorFunction:
    """Return a formatter that notes the error which it makes an output of."""

    def format_error(context: Any, error: Exception) -> Any:
        _end.set(outcome_of(error))
        return formatter(context, error)

    return format_error


def question(state: RunState[Any], *, run: str, **policy: Any) -> Question:
    """Return what `Client.ask` asks: an item for each call that waits. `run` names this run
    and no other; `policy` is that of `question_of`. Raises `NotSigned` for other tools.
    """
    calls = [_call(waiting) for waiting in state.get_interruptions()]
    return tool_calls.question_of(LIBRARY, run, calls, **policy)


def decide(
    state: RunState[Any],
    approval: Approval,
    *,
    run: str,
    client: AsyncClient | None = None,
) -> None:
    """Approve and reject in the state as people did; its tools run in this task alone.
    With a `client`, it is reported how each of them ended.
    """
    calls = [_call(waiting) for waiting in state.get_interruptions()]
    items = tool_calls.signed_items(LIBRARY, run, calls, approval)
    approved = {}
    interruptions = state.get_interruptions()
    for waiting, item in zip(interruptions, items, strict=True):
        if item.approved:
            arguments = waiting.arguments or ""
            call = (item.id, item.label, arguments)
            approved[call] = _Signed(item, approval, client)
            state.approve(waiting)
        else:
            state.reject(waiting, rejection_message=item.reason or None)
    _approved.set(approved)


def _call(waiting: ToolApprovalItem) -> ToolCall:
    tools = {tool.name: tool for tool in waiting.agent.tools}
    tool: Any = tools.get(waiting.name or "")
    runner = getattr(tool, "on_invoke_tool", None)
    if not isinstance(runner, _SignedRunner):
        agent = waiting.agent.name
        raise NotSigned(f"{waiting.name} of agent {agent} is no signed_tool")
    id = waiting.call_id or ""
    arguments = json.loads(waiting.arguments or "{}")
    return ToolCall(id, tool.name, arguments, tool.params_json_schema)
