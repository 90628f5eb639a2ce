"""What follows a settled gate: read off the edges, each node with what it seems to read
of the writes.
"""

from typing import Any

import pytest

from approvals.gates.departed_line import departed_line
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest
from approvals.views.consequences import Fate, lines_after
from checkpoints.sealing import sealed_rows
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, registry
from orchestrator.engine.graphs.compile import compile
from tests.support.small_graphs import graph, slice_of, started
from tests.support.versioned_graphs import deployed

APPLIED = Fate("letter", "The letter", True)
DENIED = Fate("notes", "A note", False)


def _behind(fn: Any, **node: Any) -> Any:
    """The line of an external node behind a gate."""
    flow = graph("consequences")
    flow.node("ask", effect="human", gate=Gate(reviewers=["user:a"]))(
        lambda state, ctx: {"letter": "x"}
    )
    flow.node("act", effect="external", idempotent=True, **node)(fn)
    flow.edge(START, "ask")
    flow.edge("ask", "act")
    flow.edge("act", END)

    def line(*fates: Fate) -> tuple[str, str]:
        act, end = lines_after(compile(flow), "ask", "partial", fates)
        assert act.node == "act"
        assert end.text == "The run ends"
        return act.text, act.detail.split(" It cannot be taken back")[0].split(
            "It cannot be taken back"
        )[0]

    return line


def _inner(state: Any, ctx: Any) -> Any:
    return [note for note in state.notes if (lambda: state.letter)()]


@pytest.mark.parametrize(
    ("fn", "node", "expected"),
    [
        (lambda state, ctx: state.letter, {}, ("acts outside", "With: The letter.")),
        (
            lambda state, ctx: state.notes,
            {},
            ("may find nothing to do", "Rejected: A note."),
        ),
        (_inner, {}, ("acts outside", "With: The letter. Without: A note.")),
        (
            lambda state, ctx: state.notes,
            {"reads": ["letter"]},
            ("acts outside", "With: The letter."),
        ),
        (
            lambda state, ctx: print(state),
            {},
            (
                "acts outside",
                "It may find nothing to do, for not everything is approved.",
            ),
        ),
    ],
)
def test_a_node_says_which_of_the_writes_it_has(
    fn: Any, node: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert _behind(fn, **node)(APPLIED, DENIED) == expected


def test_without_a_rejection_nothing_is_said_to_be_missing() -> None:
    assert _behind(lambda state, ctx: print(state))(APPLIED) == ("acts outside", "")


@pytest.mark.django_db(transaction=True)
def test_a_migrated_value_is_signed_with_its_consequences_and_its_neighbours_count() -> (
    None
):
    def asking(version: str) -> Graph:
        flow = graph("asking", version=version)
        gate = Gate(reviewers=["group:claims"], writes={"total": Show()})
        flow.node("look")(lambda state, ctx: None)
        flow.node("ask", approve="writes", gate=gate)(
            lambda state, ctx: {"letter": "x"}
        )
        for name in ("act", "file"):
            flow.node(name)(lambda state, ctx: None)
        for source, target in (
            (START, "ask"),
            ("ask", "act"),
            ("act", END),
            (START, "look"),
            ("look", "file"),
        ):
            flow.edge(source, target)
        flow.edge("file", END)
        return flow

    run = started(asking("1"))
    slice_of(run, draining=iter([False, True]).__next__)
    new = asking("2")
    new.migration(from_version="1")(lambda state: state["scratch"].update(total=7))
    deployed(new)
    run = runs.advance(run.id)
    requests = list(ApprovalRequest.objects.filter(run=run.id))
    states = load_states(requests, sealed_rows.protection_of(run))
    compiled = registry.current("asking")
    ahead = departed_line(run, compiled, states).ahead
    predicted = {
        node: [
            line.node or line.text
            for line in lines_after(compiled, node, "approved", (), ahead)
        ]
        for node in ("$patch", "ask")
    }
    assert predicted == {
        "$patch": [
            "file",
            "The run ends",
            "The other questions of this run still wait for people",
        ],
        "ask": ["This counts once the patch is signed", "act", "The run ends"],
    }
