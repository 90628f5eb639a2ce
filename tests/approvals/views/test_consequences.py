"""What follows a settled gate: read off the edges, each node with what it seems to read of the writes."""

from typing import Any

import pytest

from approvals.views.consequences import Fate, lines_after
from orchestrator.engine import END, START, Gate
from orchestrator.engine.compile import compile
from tests.support.small_graphs import graph

APPLIED, DENIED = Fate("letter", "The letter", True), Fate("notes", "A note", False)


def _behind(fn: Any, **node: Any) -> Any:
    """The line of an external node behind a gate."""
    made = graph("consequences")
    made.node("ask", effect="human", gate=Gate(reviewers=["user:a"]))(lambda state, ctx: {"letter": "x"})
    made.node("act", effect="external", idempotent=True, **node)(fn)
    made.edge(START, "ask")
    made.edge("ask", "act")
    made.edge("act", END)

    def line(*fates: Fate) -> tuple[str, str]:
        act, end = lines_after(compile(made), "ask", "partial", fates)
        assert (act.node, end.text) == ("act", "The run ends")
        return act.text, act.more.split(" It cannot be taken back")[0].split("It cannot be taken back")[0]

    return line


def _inner(state: Any, ctx: Any) -> Any:
    return [one for one in state.notes if (lambda: state.letter)()]


@pytest.mark.parametrize(
    ("fn", "node", "expected"),
    [
        (lambda state, ctx: state.letter, {}, ("acts outside", "With: The letter.")),
        (lambda state, ctx: state.notes, {}, ("may find nothing to do", "Rejected: A note.")),
        (_inner, {}, ("acts outside", "With: The letter. Without: A note.")),
        (lambda state, ctx: state.notes, {"reads": ["letter"]}, ("acts outside", "With: The letter.")),
        (
            lambda state, ctx: print(state),
            {},
            ("acts outside", "It may find nothing to do, for not everything is approved."),
        ),
    ],
)
def test_a_node_says_which_of_the_writes_it_has(fn: Any, node: dict[str, Any], expected: tuple[str, str]) -> None:
    assert _behind(fn, **node)(APPLIED, DENIED) == expected


def test_without_a_rejection_nothing_is_said_to_be_missing() -> None:
    assert _behind(lambda state, ctx: print(state))(APPLIED) == ("acts outside", "")
