"""Deferred tools of pydantic-ai, decided by people: they run with the arguments that were
signed. Needs the extra `pydantic-ai`; docs/bridges.md has an example.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.tools import ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from orchestrator.bridges.tool_calls import ToolCall, question_of, signed_items
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
    return question_of(LIBRARY, run, _calls(messages, requests), **policy)


def results(
    messages: Messages, requests: DeferredToolRequests, approval: Approval, *, run: str
) -> DeferredToolResults:
    """Return the results with which the agent goes on from these messages: what was
    rejected is denied with the reason. Raises `NotSigned`.
    """
    calls = _calls(messages, requests)
    verdicts: dict[str, ToolApproved | ToolDenied] = {}
    for item in signed_items(LIBRARY, run, calls, approval):
        if item.approved:
            verdicts[item.id] = ToolApproved(override_args=item.value)
        else:
            verdicts[item.id] = ToolDenied(item.reason or ToolDenied.message)
    return requests.build_results(approvals=verdicts)


def outcomes(messages: Messages, approval: Approval) -> dict[str, tuple[str, str]]:
    """Return what `Client.report` reports of the approved calls that these messages end."""
    approved = {item.id for item in approval.items if item.approved}
    outcomes = {}
    for part in chain(*(message.parts for message in messages)):
        if isinstance(part, ToolReturnPart) and part.tool_call_id in approved:
            outcomes[part.tool_call_id] = (_RESULTS.get(part.outcome, "unknown"), "")
    return outcomes


def schemas_of(agent: Agent[Any, Any]) -> dict[str, Any]:
    """Return the JSON Schemas of the agent's functions, by the names of the tools."""
    toolsets: list[AbstractToolset[Any]] = []
    for toolset in agent.toolsets:
        toolset.apply(toolsets.append)
    schemas = {}
    for toolset in toolsets:
        if isinstance(toolset, FunctionToolset):
            for name, tool in toolset.tools.items():
                schemas[name] = tool.tool_def.parameters_json_schema
    return schemas


def _calls(messages: Messages, requests: DeferredToolRequests) -> list[ToolCall]:
    """Return the calls as the messages have them, from which the agent goes on."""
    waiting = {part.tool_call_id for part in requests.approvals}
    calls = []
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    for part in responses[-1].tool_calls if responses else []:
        if part.tool_call_id in waiting:
            arguments = part.args_as_dict()
            calls.append(ToolCall(part.tool_call_id, part.tool_name, arguments))
    return calls
