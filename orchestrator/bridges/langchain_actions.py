"""The interrupts of LangChain's `HumanInTheLoopMiddleware`, in both of its modes: which
actions wait in them, and their answers. Needs nothing.
"""

from collections.abc import Sequence
from typing import Any

from orchestrator.client.approval import Item
from orchestrator.engine.frozen import frozen

BATCHED = "batched"
PER_CALL = "per_call"


@frozen
class Action:
    """A tool call that waits. `may_edit` says whether the middleware lets people edit."""

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
