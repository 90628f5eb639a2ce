"""Which gates a run could come round in a new version: each new way to what came only
behind them, and no other.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import END, START, Gate, Graph
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.versions.differences import BREAKING, differences
from orchestrator.engine.versions.pending_parts import Pending
from tests.engine.small import Nothing, logs


class State(BaseModel):
    log: list[str] = []


def said(new: Any, at: Pending | None, old: Any) -> list[tuple[str, str]]:
    return [
        (difference.weight, difference.words)
        for difference in differences(old, new, at)
    ]


def asking(*more: tuple[str, str, str | None], pay_on: str = "approved") -> Any:
    """The structure of: look leads to a gate and to x; pay comes behind the gate alone,
    where it ends like that.
    """
    flow = Graph("g", input=Nothing, state=State)
    for name in ("look", "x", "refuse", "pay"):
        flow.node(name)(logs)
    flow.node("ask", approve="writes", gate=Gate(reviewers=["user:ann"]))(logs)
    flow.branch("look", lambda state: "ask", {"ask": "ask", "x": "x"})
    flow.edge(START, "look")
    for source, target, when in [
        ("ask", "pay", pay_on),
        ("ask", END, ("approved", "partial")),
        ("ask", "refuse", "rejected"),
        ("x", END, None),
        ("refuse", END, None),
        ("pay", END, None),
        *more,
    ]:
        flow.edge(source, target, when=when)
    return compile(flow).structure


OPEN_GATE = Pending(awaiting_people=("ask",))
OPEN_BESIDE = Pending(edges=("look>x?x",), awaiting_people=("ask",))
AT_X = Pending(edges=("look>x?x",))
REFUSED = Pending(edges=("ask>refuse!rejected",))
PAYING = Pending(edges=("ask>pay!approved",))


@pytest.mark.parametrize(
    ("edge", "behind", "stops", "goes_on"),
    [
        (("ask", "pay", "error"), "it", [OPEN_GATE, None], [PAYING, REFUSED, AT_X]),
        (
            ("ask", "pay", "rejected"),
            "its approval",
            [OPEN_GATE, None],
            [PAYING, REFUSED, AT_X],
        ),
        (
            ("ask", "pay", "partial"),
            "its approval in full",
            [OPEN_GATE, None],
            [PAYING, REFUSED, AT_X],
        ),
        (
            ("refuse", "pay", None),
            "its approval",
            [OPEN_GATE, REFUSED, None],
            [PAYING, AT_X],
        ),
        (
            ("x", "pay", None),
            "it",
            [OPEN_BESIDE, AT_X, None],
            [PAYING, OPEN_GATE, REFUSED],
        ),
    ],
)
def test_a_new_way_to_what_came_only_behind_a_gate_breaks_wherever_the_run_could_take_it_unsigned(
    edge: tuple[str, str, str | None],
    behind: str,
    stops: list[Pending | None],
    goes_on: list[Pending | None],
) -> None:
    new = asking(edge)
    lost = f"gate of node `ask`: `pay` came only behind {behind}, and can begin without it now"
    for at in stops:
        assert (BREAKING, lost) in said(new, at, asking()), at
    for at in goes_on:
        assert all(weight != BREAKING for weight, _ in said(new, at, asking())), at


def choosing(*more: tuple[str, str, str | None], full: str = "big") -> Any:
    """The structure of: look leads to one of two gates or to x, and pay comes behind
    either; behind `full` where all of it is approved.
    """
    flow = Graph("g", input=Nothing, state=State)
    for name in ("look", "x", "pay"):
        flow.node(name)(logs)
    flow.branch(
        "look", lambda state: "x", {name: name for name in ("small", "big", "x")}
    )
    for name in ("small", "big"):
        flow.node(name, approve="writes", gate=Gate(reviewers=["user:ann"]))(logs)
        for when in ("approved", "partial") if name == full else (None,):
            flow.edge(name, "pay" if when != "partial" else END, when=when)
    for source, target, when in [
        (START, "look", None),
        ("x", END, None),
        ("pay", END, None),
        *more,
    ]:
        flow.edge(source, target, when=when)
    return compile(flow).structure


AT_LOOK = Pending(edges=("START>look",))
AT_BIG = Pending(awaiting_people=("big",))
PAYS = Pending(edges=("small>pay",))


@pytest.mark.parametrize(
    ("edge", "stops", "goes_on"),
    [
        (("look", "pay", None), [AT_LOOK, None], [AT_BIG, PAYS, AT_X]),
        (("x", "pay", None), [AT_LOOK, AT_X, None], [AT_BIG, PAYS]),
        (("big", "pay", "partial"), [AT_LOOK, AT_BIG, None], [AT_X, PAYS]),
        (("big", "pay", "rejected"), [AT_LOOK, AT_BIG, None], [AT_X, PAYS]),
        (("small", "pay", "error"), [AT_LOOK, None], [AT_X, AT_BIG, PAYS]),
    ],
)
def test_a_new_way_to_what_came_only_behind_one_of_several_gates_breaks(
    edge: tuple[str, str, str | None],
    stops: list[Pending | None],
    goes_on: list[Pending | None],
) -> None:
    new = choosing(edge)
    old = choosing()
    lost = (
        "`pay` came only behind the approval of one of them, and can begin without"
        " any of them now"
    )
    for at in stops:
        assert (BREAKING, f"gates of nodes `big`, `small`: {lost}") in said(
            new, at, old
        ), at
    for at in goes_on:
        assert all(weight != BREAKING for weight, _ in said(new, at, old)), at


def test_a_node_that_came_behind_no_gate_may_be_reached_by_a_new_way() -> None:
    words = said(
        asking(("look", "refuse", "error")), AT_X, asking(("x", "refuse", None))
    )
    assert all(weight != BREAKING for weight, _ in words)
    assert all(
        weight != BREAKING
        for weight, _ in said(asking(("x", "refuse", None)), PAYING, asking())
    )
