"""Questions: what may be asked, what an answer must fit, and how they are played."""

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from orchestrator.engine import END, START, Append, Gate, Graph, Limit, Show, play
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs.answer_schema import LARGEST_SCHEMA
from orchestrator.engine.graphs.question import (
    is_unanswered,
    question_of,
    require_fitting,
    shown_of,
    stored_question,
)
from tests.engine.small import Nothing

HOUR = timedelta(hours=1)


class Claim(BaseModel):
    amount: Decimal | None = None
    note: str = ""
    seen: Annotated[list[str], Append] = []


def asking(ask: Any, *, effect: str = "human", **gate: Any) -> Graph:
    """A graph that asks, and whose next node notes the amount."""
    graph = Graph("asking", input=Nothing, state=Claim)
    options: dict[str, Any] = {"gate": Gate(**{"reviewers": ["user:ann"], **gate})}
    if effect != "human":
        options["approve"] = "writes"
    graph.node("ask", effect=effect, **options)(ask)
    graph.node("after")(lambda state, ctx: {"seen": [str(state.amount)]})
    graph.edge(START, "ask")
    graph.edge("ask", "after")
    graph.edge("after", END)
    return graph


def ask_amount(state: Any, ctx: Any) -> None:
    return ctx.ask("amount", "How much?")


def test_what_was_answered_is_read_by_a_later_node() -> None:
    played = play(asking(ask_amount), {}, decisions=lambda request: {0: ("edit", "5")})
    assert played.status == "completed"
    assert played.state.seen == ["5"]


def test_declining_is_a_rejection() -> None:
    played = play(asking(ask_amount), {}, decisions=lambda request: {0: "reject"})
    assert (played.status, played.state.amount) == ("rejected", None)


def test_what_nobody_answered_is_not_approved() -> None:
    with pytest.raises(InvalidValue, match="amount: nobody has answered it yet"):
        play(asking(ask_amount), {}, decisions=lambda request: {0: "approve"})


def test_null_is_an_answer() -> None:
    answered = play(asking(ask_amount), {}, decisions=lambda r: {0: ("edit", None)})
    assert answered.state.seen == ["None"]


def test_a_question_comes_behind_what_the_node_proposes_in_one_request() -> None:
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.ask("amount", "How much?")
        return {"note": "proposed"}

    [request] = play(asking(propose), {}).gates
    shown = [(w.channel, w.label, w.value, w.unanswered) for w in request.writes]
    assert shown == [
        ("note", "note", "proposed", False),
        ("amount", "How much?", None, True),
    ]


def test_a_rule_that_needs_nobody_does_not_answer() -> None:
    graph = asking(ask_amount, needs_approval=lambda state, proposal: False)
    assert play(graph, {}).status == "paused"


@pytest.mark.parametrize(
    ("ask", "fault"),
    [
        (lambda state, ctx: ctx.ask("amuont", "How much?"), "no channel of the state"),
        (lambda state, ctx: ctx.ask("input", "How much?"), "nothing may write"),
        (lambda state, ctx: ctx.ask("amount", " "), "needs a prompt"),
        (lambda state, ctx: ctx.ask("amount", "How?", {"type": 1}), "no JSON Schema"),
        (lambda state, ctx: ctx.ask("amount", "How?", 7), "nor a type that has one"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(ask: Any, fault: str) -> None:
    played = play(asking(ask), {})
    assert played.status == "failed"
    assert fault in str(played.error)


def test_only_a_human_node_asks() -> None:
    played = play(asking(ask_amount, effect="pure"), {})
    assert "ctx.ask is for nodes with effect='human'" in str(played.error)


def test_an_answer_fits_the_channel_the_schema_and_the_limits() -> None:
    def ask(state: Any, ctx: Any) -> None:
        ctx.ask("amount", "How much?", Annotated[str, Field(min_length=2)])

    graph = asking(ask, writes={"amount": Show(limits={"value": Limit(at_most=50)})})
    for value, fault in (
        ("much", "amount"),
        ("5", "does not fit what was asked: amount: '5'"),
        ("60", "must be at most 50"),
        (None, "does not fit what was asked"),
    ):
        with pytest.raises(InvalidValue, match=fault):
            play(graph, {}, decisions=lambda request, v=value: {0: ("edit", v)})
    done = play(graph, {}, decisions=lambda request: {0: ("edit", "10")})
    assert done.state.seen == ["10"]


def test_null_is_no_way_round_a_limit() -> None:
    limited = {"amount": Show(limits={"value": Limit(at_most=50)})}
    graph = asking(ask_amount, writes=limited)
    with pytest.raises(InvalidValue, match="outside the limits"):
        play(graph, {}, decisions=lambda request: {0: ("edit", None)})


def test_a_schema_is_a_type_or_json_schema_and_refers_to_nothing_outside() -> None:
    assert question_of(None) == {"schema": None}
    assert question_of(int) == {"schema": {"type": "integer"}}
    assert question_of({"enum": ["a"]}) == {"schema": {"enum": ["a"]}}
    with pytest.raises(InvalidValue, match="refers to another document"):
        question_of({"properties": {"a": {"$ref": "https://example.com/a.json"}}})
    with pytest.raises(PayloadTooLarge):
        question_of({"description": "a" * LARGEST_SCHEMA})


def test_what_is_shown_tells_a_question_from_null() -> None:
    question = question_of(int)
    shown = shown_of(question)
    assert is_unanswered(shown)
    assert stored_question(shown) == question
    assert not is_unanswered({})
    assert not is_unanswered({"ask": {"schema": None, "answered": True}})
    assert shown_of(None) == {}


def test_each_part_of_an_answer_that_does_not_fit_is_named() -> None:
    shown = shown_of(question_of({"items": {"type": "integer"}, "maxItems": 2}))
    with pytest.raises(InvalidValue) as caught:
        require_fitting(shown, "amount", [1, "b"])
    assert caught.value.facts["path"] == "amount.1"
    require_fitting(shown, "amount", [1, 2])
    require_fitting({}, "amount", "anything")


def test_silence_answers_nothing() -> None:
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.ask("amount", "How much?")
        return {"note": "proposed"}

    hour = {"deadline": HOUR, "on_deadline": "approve"}
    played = play(asking(ask, **hour), {}, decisions=lambda request: "deadline")
    assert (played.state.note, played.state.amount) == ("proposed", None)


def test_no_automatic_policy_answers() -> None:
    seen: list[list[str]] = []

    def sign(state: Any, proposal: Any) -> bool:
        seen.append(list(proposal))
        return True

    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.ask("amount", "How much?")
        return {"note": "proposed"}

    played = play(asking(ask, auto=sign), {})
    assert played.status == "paused"
    assert [write.verdict for write in played.gates[0].writes] == ["approved", None]
    assert seen == [["note"]]
