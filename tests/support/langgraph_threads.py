"""Graphs of LangGraph and what a checkpointer answers about their threads, without ids
and times: so that two checkpointers can be compared.
"""

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt


class Letter(TypedDict, total=False):
    """The state of a letter that a person releases."""

    text: str
    notes: Annotated[list[str], operator.add]
    answer: str


def _write(state: Letter) -> Letter:
    return {"text": f"Dear {state['text']}", "notes": ["written"]}


def _ask(state: Letter) -> Letter:
    return {"answer": interrupt({"release": state["text"]}), "notes": ["asked"]}


def _send(state: Letter) -> Letter:
    return {"notes": [f"sent {state['answer']}"]}


def letter(saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph that writes, asks a person and sends."""
    builder = StateGraph(Letter)
    builder.add_node("write", _write)
    builder.add_node("ask", _ask)
    builder.add_node("send", _send)
    builder.add_edge(START, "write")
    builder.add_edge("write", "ask")
    builder.add_edge("ask", "send")
    builder.add_edge("send", END)
    return builder.compile(checkpointer=saver)


def _check(state: Any) -> Letter:
    return {"notes": [f"checked {state}"]}


def _fan_out(state: Letter) -> list[Send]:
    return [Send("check", name) for name in ("a", "b", "c")]


def with_letter_inside(saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph that calls the one of `letter` as a node, after parallel checks."""
    builder = StateGraph(Letter)
    builder.add_node("check", _check)
    builder.add_node("letter", letter(True))  # type: ignore[arg-type]
    builder.add_conditional_edges(START, _fan_out, ["check"])
    builder.add_edge("check", "letter")
    builder.add_edge("letter", END)
    return builder.compile(checkpointer=saver)


def thread(name: str) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


def travelled(graph: Any, name: str) -> list[Any]:
    """Return what a checkpointer answers to an interrupt, a resumption, and an update
    of an old checkpoint that goes on from there.
    """
    config = thread(name)
    answers = [_plain(graph.invoke({"text": "Ada", "notes": []}, config))]
    answers.append(history(graph, name))
    answers.append(_plain(graph.invoke(Command(resume="yes"), config)))
    answers.append(history(graph, name))

    old = next(s for s in graph.get_state_history(config) if s.next == ("ask",))
    branch = graph.update_state(old.config, {"text": "Dear Bob"}, as_node="write")
    answers.append(history(graph, name))
    answers.append(_plain(graph.invoke(None, branch)))
    answers.append(_plain(graph.invoke(Command(resume="no"), config)))
    answers.append(history(graph, name))
    return answers


def history(graph: Any, name: str) -> list[Any]:
    """Each checkpoint of a thread, with the place of its parent in the list."""
    snapshots = list(graph.get_state_history(thread(name)))
    places = {
        s.config["configurable"]["checkpoint_id"]: place
        for place, s in enumerate(snapshots)
    }
    collected = []
    for s in snapshots:
        parent = s.parent_config
        parent_id = parent["configurable"]["checkpoint_id"] if parent else None
        tasks = [(t.name, t.error, _plain(t.interrupts), t.result) for t in s.tasks]
        metadata = {name: s.metadata[name] for name in ("source", "step")}
        collected.append((s.values, s.next, metadata, places.get(parent_id), tasks))
    return collected


def _plain(value: Any) -> Any:
    """A value without the ids of interrupts, which are random."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return getattr(value, "value", value)
