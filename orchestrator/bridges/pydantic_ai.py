"""Deferred tools of pydantic-ai run with what people signed: docs/bridges.md."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.tools import ToolApproved, ToolDenied
from pydantic_ai.toolsets import FunctionToolset

from orchestrator.bridges.reports import Outcome
from orchestrator.bridges.tool_calls import (
    NotSigned,
    ToolCall,
    question_of,
    signed_items,
)
from orchestrator.client.approval import Approval
from orchestrator.client.flows import Question

LIBRARY = "pydantic-ai"
Messages = Sequence[ModelMessage]
_RESULTS = {"success": "done", "failed": "failed"}


def question(
    messages: Messages, requests: DeferredToolRequests, *, run: str, **policy: Any
) -> Question:
    """Return what `Client.ask` asks: an item for each call of the messages that waits for
    approval. `run` names this run and no other; `policy` is that of `question_of`.
    """
    calls = _calls(messages, requests)
    return question_of(LIBRARY, run, calls, **policy)


def results(
    messages: Messages, requests: DeferredToolRequests, approval: Approval, *, run: str
) -> DeferredToolResults:
    """Return the results with which the agent goes on. Raises `NotSigned`."""
    calls = _calls(messages, requests)
    verdicts: Any = {}
    for item in signed_items(LIBRARY, run, calls, approval):
        if item.approved:
            verdicts[item.id] = ToolApproved(override_args=item.value)
        else:
            verdicts[item.id] = ToolDenied(item.reason or ToolDenied.message)
    return requests.build_results(approvals=verdicts)


def outcomes(messages: Messages, approval: Approval) -> dict[str, Outcome]:
    """Return what to `report` of the approved calls that these messages end."""
    approved = {item.id for item in approval.approved_items}
    outcomes = {}
    for message in messages:
        for part in message.parts:
            if not isinstance(part, ToolReturnPart) or part.outcome == "denied":
                continue
            if part.tool_call_id in approved:
                result = _RESULTS.get(part.outcome, "unknown")
                outcomes[part.tool_call_id] = (result, "")
    return outcomes


def schemas_of(agent: Agent[Any, Any]) -> dict[str, Any]:
    """Return the JSON Schemas of the agent's functions, by the names of the tools."""
    toolsets: list[Any] = []
    for toolset in agent.toolsets:
        toolset.apply(toolsets.append)
    schemas = {}
    for toolset in toolsets:
        if isinstance(toolset, FunctionToolset):
            for name, tool in toolset.tools.items():
                schemas[name] = tool.tool_def.parameters_json_schema
    return schemas


def _calls(messages: Messages, requests: DeferredToolRequests) -> list[ToolCall]:
    """Return the calls as the messages have them, from which the agent goes on. Raises
    `NotSigned` for an id that came before: its signature was for that call.
    """
    waiting = {part.tool_call_id for part in requests.approvals}
    calls: list[ToolCall] = []
    earlier: set[str] = set()
    for message in messages:
        if isinstance(message, ModelResponse):
            earlier |= {call.id for call in calls}
            calls = []
            for part in message.tool_calls:
                id = part.tool_call_id
                arguments = part.args_as_dict()
                calls.append(ToolCall(id, part.tool_name, arguments))
    for id in sorted(waiting & earlier):
        raise NotSigned(f"the model gave the id {id} to an earlier call too")
    return [call for call in calls if call.id in waiting]
