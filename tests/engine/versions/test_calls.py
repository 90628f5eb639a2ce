"""A new version of a graph whose nodes are called once people approved, for a run that
stands at such a call.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.frontier import Frontier, Part
from orchestrator.engine.versions.differences import BREAKING, WARNING, differences
from orchestrator.engine.versions.pending_parts import Pending, pending_parts
from tests.support.call_graphs import Payment, paying


class Retyped(BaseModel):
    payee: str
    amount: int


def at(status: str) -> Pending:
    """Return where a run stands whose call waits, or was approved."""
    frontier = Frontier(waiting={"pay:1": (Part(status),)})
    return pending_parts(frontier.to_json(), {})


def weights(after: Any, place: Pending | None) -> list[str]:
    old = compile(paying()).structure
    changes = differences(old, compile(after).structure, place)
    return [found.weight for found in changes if found.what == "call of node `pay`"]


def with_args(args: Any) -> Any:
    graph = paying()
    graph.nodes[0] = type(graph.nodes[0])(**{**vars(graph.nodes[0]), "args": args})
    return graph


@pytest.mark.parametrize("status", ["gated", "call"])
def test_other_arguments_break_a_run_whose_call_waits(status: str) -> None:
    assert weights(with_args(Retyped), at(status)) == [BREAKING]


def test_other_arguments_are_a_warning_before_anything_was_proposed() -> None:
    before = Pending(edges=("START>pay",))
    assert weights(with_args(Retyped), before) == [WARNING]


def test_the_same_arguments_are_no_difference() -> None:
    assert weights(with_args(Payment), at("gated")) == []


def test_a_call_that_waits_needs_its_node() -> None:
    graph = paying()
    old = compile(graph).structure
    new = {**old, "nodes": [node for node in old["nodes"] if node["name"] != "pay"]}
    changes = differences(old, new, at("gated"))
    assert (BREAKING, "node `pay`") in [(each.weight, each.what) for each in changes]


def test_an_approved_call_is_about_to_start() -> None:
    assert at("call").nodes == ("pay",)
    assert at("gated").nodes == ()
