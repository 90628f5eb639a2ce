"""Interrupts of LangGraph go on with what people signed: docs/bridges.md."""

from collections.abc import Iterable
from typing import Any

from langgraph.types import Command, Interrupt, StateSnapshot
from typing_extensions import TypedDict

from orchestrator.bridges.langchain_actions import (
    actions_of,
    answer_of,
    ends_of,
    mode_of,
    tool_ids_of,
)
from orchestrator.bridges.reports import Outcome
from orchestrator.bridges.tool_calls import (
    ToolCall,
    key_of,
    question_of,
    signed_items,
)
from orchestrator.client.approval import Approval, Item
from orchestrator.client.flows import Question

LIBRARY = "langgraph"


class SignedAnswer(TypedDict):
    """The answer to an interrupt of a node: act on `value` alone, which was signed."""

    verdict: str
    """approved or rejected"""
    value: Any
    reason: str


def question(snapshot: StateSnapshot, **policy: Any) -> Question:
    """Return what `Client.ask` asks: an item for each interrupt of a node, and for each
    tool call of an agent that waits. `snapshot` is that of `get_state`; `policy` has the
    `reviewers`, and what else `question_of` takes, by the names of nodes and tools.
    """
    return question_of(LIBRARY, _thread(snapshot), _all_calls(snapshot), **policy)


def resume(snapshot: StateSnapshot, approval: Approval) -> Command[Any]:
    """Return the command with which the thread goes on. Raises `NotSigned`."""
    calls = _all_calls(snapshot)
    thread = _thread(snapshot)
    items = signed_items(LIBRARY, thread, calls, approval)
    answers: Any = {}
    for waiting in snapshot.interrupts:
        ids = {call.id for call in _calls(snapshot, waiting)}
        own = [item for item in items if item.id in ids]
        if mode_of(waiting):
            answers[waiting.id] = answer_of(waiting, own)
        else:
            answers[waiting.id] = _answer(own[0])
    return Command(resume=answers)


def outcomes(
    history: Iterable[StateSnapshot], approval: Approval
) -> dict[str, Outcome]:
    """Return what to `report` of the approved tool calls of an agent, as far as they have
    ended. `history` is that of `get_state_history`, the newest first. What came of a
    node's own interrupt the node alone can say.
    """
    ends: dict[str, Outcome] = {}
    for snapshot in history:
        messages = snapshot.values.get("messages", ())
        ends = ends_of(messages) | ends
        calls = _all_calls(snapshot)
        if calls and approval.key == key_of(LIBRARY, _thread(snapshot), calls):
            ids = [call.id for call in calls]
            tool_ids: list[str] = []
            for waiting in snapshot.interrupts:
                tool_ids += tool_ids_of(waiting, messages)
            pairs = zip(ids, tool_ids, strict=True)
            approved = {item.id for item in approval.approved_items}
            return {id: ends[t] for id, t in pairs if id in approved and t in ends}
    return {}


def _answer(item: Item) -> SignedAnswer:
    value = None
    if item.approved:
        value = item.value
    return {"verdict": item.verdict, "value": value, "reason": item.reason}


def _thread(snapshot: StateSnapshot) -> str:
    return str(snapshot.config["configurable"]["thread_id"])


def _all_calls(snapshot: StateSnapshot) -> list[ToolCall]:
    calls = []
    for waiting in snapshot.interrupts:
        calls += _calls(snapshot, waiting)
    return calls


def _calls(snapshot: StateSnapshot, waiting: Interrupt) -> list[ToolCall]:
    """Return the calls that wait in an interrupt; that of a node is called as its node."""
    if not mode_of(waiting):
        tasks = [task for task in snapshot.tasks if waiting in task.interrupts]
        return [ToolCall(waiting.id, tasks[0].name, waiting.value)]
    calls = []
    for number, action in enumerate(actions_of(waiting)):
        schema = None
        if not action.may_edit:
            schema = {"const": action.arguments}
        id = f"{waiting.id}.{number}"
        calls.append(ToolCall(id, action.tool, action.arguments, schema))
    return calls
