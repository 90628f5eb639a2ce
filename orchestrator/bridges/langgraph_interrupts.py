"""Interrupts of LangGraph, and of LangChain's agents with a human in the loop, decided by
people. Needs the extra `langgraph`; docs/bridges.md has an example.
"""

from itertools import chain, islice
from typing import Any

from langgraph.types import Command, Interrupt, StateSnapshot
from typing_extensions import TypedDict

from orchestrator.bridges.langchain_actions import actions_of, answer_of, mode_of
from orchestrator.bridges.tool_calls import ToolCall, question_of, signed_items
from orchestrator.client.approval import Approval, Item
from orchestrator.client.flows import Question

LIBRARY = "langgraph"


class Verdict(TypedDict):
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
    calls = [_calls(snapshot, waiting) for waiting in snapshot.interrupts]
    return question_of(LIBRARY, _thread(snapshot), [*chain(*calls)], **policy)


def resume(snapshot: StateSnapshot, approval: Approval) -> Command[Any]:
    """Return the command with which the thread goes on. Raises `NotSigned`."""
    calls = [_calls(snapshot, waiting) for waiting in snapshot.interrupts]
    items = iter(signed_items(LIBRARY, _thread(snapshot), [*chain(*calls)], approval))
    answers: dict[str, Any] = {}
    for waiting, of_interrupt in zip(snapshot.interrupts, calls, strict=True):
        own = list(islice(items, len(of_interrupt)))
        answers[waiting.id] = (
            answer_of(waiting, own) if mode_of(waiting) else _verdict(*own)
        )
    return Command(resume=answers)


def _verdict(item: Item) -> Verdict:
    value = item.value if item.approved else None
    return {"verdict": item.verdict, "value": value, "reason": item.reason}


def _thread(snapshot: StateSnapshot) -> str:
    return str(snapshot.config["configurable"]["thread_id"])


def _calls(snapshot: StateSnapshot, waiting: Interrupt) -> list[ToolCall]:
    """Return the calls that wait in an interrupt; that of a node is called as its node."""
    if not mode_of(waiting):
        [node] = [task.name for task in snapshot.tasks if waiting in task.interrupts]
        return [ToolCall(waiting.id, node, waiting.value)]
    calls = []
    for number, action in enumerate(actions_of(waiting)):
        schema = None if action.may_edit else {"const": action.arguments}
        id = f"{waiting.id}.{number}"
        calls.append(ToolCall(id, action.tool, action.arguments, schema))
    return calls
