"""The proposed value and the recorded answer of a choice, as the person sees them whose
answer counts as a signature.
"""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import render_to_string
from pydantic import BaseModel

from orchestrator.engine import END, START, Graph
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.views.go_on import answer_choices
from orchestrator.views.go_on.answer_choices import AnswerChoice
from tests.approvals.views.looks import look

LONG = "word " * 1000


class Nothing(BaseModel):
    """No input."""


class State(BaseModel):
    """A bare decimal, and a text."""

    amount: Decimal = Decimal(0)
    text: str = ""


def point() -> Any:
    """A point at which one node asks."""
    graph = Graph("answered", input=Nothing, state=State)
    graph.node("ask")(lambda state, ctx: None)
    graph.edge(START, "ask")
    graph.edge("ask", END)
    return SimpleNamespace(graph=compile(graph))


def choice(
    monkeypatch: pytest.MonkeyPatch, channel: str, proposed: Any, answer: Any
) -> AnswerChoice:
    """The choice of one write that was answered, without rows."""
    task: Any = SimpleNamespace(node="ask")
    decision: Any = SimpleNamespace(verdict="edit", by=None)
    monkeypatch.setattr(answer_choices, "read_value", lambda row, column: answer)
    write = HeldWrite(task, 0, channel, proposed, None)
    held: Any = SimpleNamespace(task=task)
    return answer_choices._choice(point(), held, write, decision, "")


def looks(shown: AnswerChoice) -> tuple[str, str]:
    """The look of the proposed value and of the answer."""
    page = {"answers": {"choices": [shown]}}
    html = render_to_string("orchestrator/_go_on_answers.html", {"page": page})
    proposed = html.split('data-test="proposed">')[1].split("</div>")[0]
    answered = html.split('data-test="answered">')[1].split("</div>")[0]
    return in_words(proposed), in_words(answered)


def in_words(html: str) -> str:
    """The look of a value without its font."""
    html = html.replace('<code class="js">', "<span>").replace("</code>", "</span>")
    return look(html).strip()


@pytest.mark.parametrize(
    ("proposed", "answer"),
    [("1000", "1e3"), ("1000", "1E+3"), ("1e3", "1E+3"), ("7", 7), (None, "not set")],
)
def test_amounts_that_are_written_in_two_ways_do_not_read_alike(
    monkeypatch: pytest.MonkeyPatch, proposed: Any, answer: Any
) -> None:
    shown = choice(monkeypatch, "amount", proposed, answer)
    first, second = looks(shown)
    assert second.startswith("The system answered:")
    assert first != second.removeprefix("The system answered:").strip()


def test_a_long_answer_is_shown_where_it_differs_with_its_length_and_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = choice(monkeypatch, "text", f"{LONG}ten", f"{LONG}three")
    first, second = looks(shown)
    assert "ten" in first
    assert "three" in second
    assert "more characters, fingerprint" in first
    assert "more characters, fingerprint" in second


def test_a_rejected_value_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = SimpleNamespace(node="ask")
    held: Any = SimpleNamespace(task=task)
    decision: Any = SimpleNamespace(verdict="reject", by=None)
    write = HeldWrite(task, 0, "text", "a", None)
    shown = answer_choices._choice(point(), held, write, decision, "")
    assert shown.answered is None
    assert looks(shown)[1] == "The system rejected it."


def test_a_question_is_shown_with_its_prompt_and_a_form_by_its_schema() -> None:
    task: Any = SimpleNamespace(node="ask")
    question = {"schema": {"enum": ["low", "high"]}}
    write = HeldWrite(task, 0, "text", None, "Which rate?", question=question)
    held: Any = SimpleNamespace(task=task)
    shown = answer_choices._choice(point(), held, write, None, "")
    assert shown.control.choices == [("low", "Low"), ("high", "High")]
    page = {"answers": {"choices": [shown]}}
    html = render_to_string("orchestrator/_go_on_answers.html", {"page": page})
    assert '<p data-test="prompt">Which rate?</p>' in html
    assert "asks for" in html
