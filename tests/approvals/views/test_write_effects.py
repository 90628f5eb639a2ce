"""The mark of a write is the heaviest effect that it sets off once it is approved."""

from typing import Any

import pytest
from pydantic import BaseModel

from approvals.views.write_effects import WriteEffect, effect_of_write, with_named
from orchestrator.demo.claims.graphs import graph as claim_payout
from orchestrator.engine import END, START, Gate, Graph
from orchestrator.engine.graphs.compile import Compiled, compile


class State(BaseModel):
    money: int = 0
    letter: str = ""


def graph_of(*, second_gate: bool = False, pay_reads: Any = ("money",)) -> Compiled:
    """propose (a gate) → between (pure, or another gate) → pay (external); or → record (write)."""
    graph = Graph("effects", input=State, state=State)
    gate = Gate(reviewers=["group:reviewer"])
    between: dict[str, Any] = {"effect": "human", "gate": gate} if second_gate else {}
    graph.node("propose", effect="human", gate=gate)(lambda state, ctx: {"money": 1})
    graph.node("between", **between)(lambda state, ctx: {"money": 2})
    graph.node("record", effect="write", reads=["letter"])(lambda state, ctx: None)
    graph.node("pay", effect="external", reads=pay_reads)(lambda state, ctx: None)
    graph.edge(START, "propose")
    graph.edge("propose", "between", when="approved")
    graph.edge("propose", "record", when=("rejected", "partial"))
    graph.edge(
        "between", "pay", **({"when": ("approved", "partial")} if second_gate else {})
    )
    graph.edge("record", END)
    graph.edge("pay", END)
    return compile(graph)


def test_a_write_that_a_node_behind_the_gate_acts_on_outside_is_external() -> None:
    assert effect_of_write(graph_of(), "propose", "money") == WriteEffect(
        "external", "pay"
    )


def test_a_write_that_no_effect_sees_is_a_plain_write() -> None:
    assert effect_of_write(graph_of(), "propose", "letter") == WriteEffect("write", "")


def test_a_node_that_names_no_channels_counts_for_each_write() -> None:
    assert effect_of_write(
        graph_of(pay_reads=None), "propose", "letter"
    ) == WriteEffect("external", "pay")


def test_what_lies_behind_another_gate_does_not_count() -> None:
    assert effect_of_write(
        graph_of(second_gate=True), "propose", "money"
    ) == WriteEffect("write", "")


def test_where_the_graph_is_not_here_a_write_is_a_write() -> None:
    assert effect_of_write(None, "propose", "money") == WriteEffect()


@pytest.mark.parametrize(
    ("channel", "effect"),
    [
        ("payout", WriteEffect("external", "pay")),
        ("letter", WriteEffect("external", "send_letter")),
        ("case_update", WriteEffect("write", "update_case")),
        ("reserve_release", WriteEffect("write", "update_case")),
    ],
)
def test_the_writes_of_the_example_have_their_marks(
    channel: str, effect: WriteEffect
) -> None:
    assert effect_of_write(compile(claim_payout), "review", channel) == effect


def test_a_write_may_name_a_heavier_effect_than_its_graph_has() -> None:
    plain = WriteEffect("write", "record")
    assert with_named(plain, "") == plain
    assert with_named(plain, "pure") == WriteEffect("write", "record", "pure")
    assert with_named(plain, "external") == WriteEffect("external", "", "external")
    paid = WriteEffect("external", "pay")
    assert with_named(paid, "write") == WriteEffect("external", "pay", "write")
