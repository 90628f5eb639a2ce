"""Interrupts of LangGraph: each pause asks for itself, and a thread that moved on runs
nothing.
"""

from typing import Any, TypedDict

import pytest

from orchestrator.client import KeyConflict
from tests.support.agents import REVIEWERS
from tests.support.bridges import Office
from tests.support.tool_calls import APPROVE, REJECT, sign

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.graph import START, StateGraph  # noqa: E402
from langgraph.types import Interrupt, interrupt  # noqa: E402

from orchestrator.bridges.langgraph_interrupts import (  # noqa: E402
    SignedAnswer,
    question,
    resume,
)
from orchestrator.bridges.tool_calls import NotSigned  # noqa: E402
from tests.support.agents.langgraph import Payer  # noqa: E402

pytestmark = pytest.mark.django_db(transaction=True)
THREAD: Any = {"configurable": {"thread_id": "t-1"}}


class Answers(TypedDict, total=False):
    answers: list[str]


def twice(state: Answers) -> Answers:
    """Ask the same question two times."""
    answers = [interrupt("May I?", response_schema=SignedAnswer) for _ in range(2)]
    return {"answers": [answer["verdict"] for answer in answers]}


def asking_twice() -> Any:
    builder = StateGraph(Answers)
    builder.add_node("twice", twice)
    builder.add_edge(START, "twice")
    return builder.compile(checkpointer=InMemorySaver())


def test_the_same_question_asked_again_by_a_node_is_another_approval(
    office: Office,
) -> None:
    graph = asking_twice()
    graph.invoke({}, THREAD)
    snapshot = graph.get_state(THREAD)
    first = office.client.ask(**question(snapshot, reviewers=REVIEWERS))
    signed = sign(office, first, APPROVE)
    graph.invoke(resume(snapshot, signed), THREAD)
    snapshot = graph.get_state(THREAD)
    with pytest.raises(NotSigned):
        resume(snapshot, signed)
    second = office.client.ask(**question(snapshot, reviewers=REVIEWERS))
    assert second.id != first.id
    result = graph.invoke(resume(snapshot, sign(office, second, REJECT)), THREAD)
    assert result["answers"] == ["approved", "rejected"]


def test_a_snapshot_that_lies_is_refused(office: Office) -> None:
    payer = Payer().pause()
    snapshot = payer.snapshot()
    asked = office.client.ask(**payer.question())
    [first, second] = snapshot.interrupts
    lie = Interrupt({"invoice": "a", "amount": 9999}, id=first.id)
    task = snapshot.tasks[0]._replace(interrupts=(lie, second))
    lying = snapshot._replace(interrupts=(lie, second), tasks=(task,))
    with pytest.raises(KeyConflict):
        office.client.ask(**question(lying, reviewers=REVIEWERS))
    with pytest.raises(NotSigned):
        resume(lying, sign(office, asked, APPROVE, APPROVE))


def test_a_state_that_was_updated_after_the_question_asks_anew(office: Office) -> None:
    payer = Payer().pause()
    asked = office.client.ask(**payer.question())
    payer.graph().update_state(payer.config, {"results": ["changed"]}, as_node="pay")
    with pytest.raises(NotSigned):
        payer.go_on(sign(office, asked, APPROVE, APPROVE))
    assert payer.shop.paid == []
