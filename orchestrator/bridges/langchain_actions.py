"""The interrupts of LangChain's `HumanInTheLoopMiddleware`, in both of its modes: which
actions wait in them, their answers, and how the tools ended. Needs nothing.
"""

from collections.abc import Sequence
from typing import Any

from orchestrator.bridges.reports import DONE, Outcome
from orchestrator.client.approval import Item
from orchestrator.engine.frozen import frozen

_ENDS = {"success": DONE, "error": ("unknown", "the tool returned an error")}
BATCHED = "batched"
PER_CALL = "per_call"


@frozen
class Action:
    """A tool call that waits. `may_edit` says whether the middleware allows people to
    edit.
    """

    tool: str
    arguments: Any
    may_edit: bool


def mode_of(interrupt: Any) -> str | None:
    """Return the mode of the middleware, or None for an interrupt of anything else."""
    value = interrupt.value if isinstance(interrupt.value, dict) else {}
    if {"action_requests", "review_configs"} <= value.keys():
        return BATCHED
    if value.get("type") == "tool_approval":
        return PER_CALL
    return None


def actions_of(interrupt: Any) -> list[Action]:
    """Return the actions that wait in an interrupt of the middleware."""
    value = interrupt.value
    if mode_of(interrupt) == PER_CALL:
        # The decisions that are allowed stand in the schema of the answer alone.
        may_edit = "EditedAction" in (interrupt.response_schema or {}).get("$defs", {})
        return [Action(value["name"], value["args"], may_edit)]
    actions = []
    for action, config in zip(
        value["action_requests"], value["review_configs"], strict=True
    ):
        may_edit = "edit" in config["allowed_decisions"]
        actions.append(Action(action["name"], action["args"], may_edit))
    return actions


def tool_ids_of(interrupt: Any, messages: Sequence[Any]) -> list[str]:
    """Return the model's ids of the actions that wait in an interrupt, in their order;
    an empty one for an interrupt of anything else. `messages` are those at the pause.
    """
    if mode_of(interrupt) is None:
        return [""]
    if mode_of(interrupt) == PER_CALL:
        return [interrupt.value["tool_call_id"]]
    [*_, asking] = [message for message in messages if message.type == "ai"]
    calls = list(asking.tool_calls)
    ids = []
    for action in actions_of(interrupt):
        same = {"name": action.tool, "args": action.arguments}
        call = next(call for call in calls if same.items() <= call.items())
        calls.remove(call)
        ids.append(call["id"])
    return ids


def ends_of(messages: Sequence[Any]) -> dict[str, Outcome]:
    """Return the outcomes of the tool calls that have ended, by the model's ids."""
    ends = {}
    for message in messages:
        if getattr(message, "type", "") == "tool":
            ends[message.tool_call_id] = _ENDS[message.status]
    return ends


def answer_of(interrupt: Any, items: Sequence[Item]) -> dict[str, Any]:
    """Return the answer to an interrupt of the middleware, whose items have verdicts."""
    decisions = [_decision(item) for item in items]
    if mode_of(interrupt) == PER_CALL:
        return decisions[0]
    return {"decisions": decisions}


def _decision(item: Item) -> dict[str, Any]:
    if item.edited:
        action = {"name": item.label, "args": item.value}
        return {"type": "edit", "edited_action": action}
    if item.approved:
        return {"type": "approve"}
    return {"type": "reject", "message": item.reason}
