"""What a node says of a proposal besides its label: a schema for edits, an effect."""

from typing import Any

import pytest

from orchestrator.engine import END, START, Gate, Graph, Write, play
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.write import form_of
from tests.support.small_graphs import graph

SMALL = {"type": "integer", "maximum": 10}


def _proposing(*writes: Write, gate: Gate | None = None, **settings: Any) -> Graph:
    flow = graph("with-form")
    options = {"effect": "human", "gate": gate or Gate(reviewers=["group:claims"])}
    flow.node("propose", **{**options, **settings})(lambda state, ctx: list(writes))
    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


def test_an_edit_must_fit_the_schema_of_its_own_write() -> None:
    flow = _proposing(
        Write("total", 3, schema=SMALL),
        Write("letter", "Dear", schema={"maxLength": 9}),
    )
    fits = play(flow, {}, decisions=lambda request: {0: ("edit", 9), 1: "approve"})
    assert fits.state.total == 9
    with pytest.raises(InvalidValue, match="does not fit the schema of its write"):
        play(flow, {}, decisions=lambda request: {0: ("edit", 11), 1: "approve"})


def test_a_proposal_that_does_not_fit_its_own_schema_fails_the_task() -> None:
    played = play(_proposing(Write("total", 30, schema=SMALL)), {})
    assert played.status == "failed"
    assert "30 is greater than the maximum" in played.error.message


def test_a_form_is_for_nodes_with_a_gate() -> None:
    flow = graph("no-gate")
    flow.node("note")(lambda state, ctx: [Write("total", 3, effect="external")])
    flow.edge(START, "note")
    flow.edge("note", END)
    assert "are for nodes with a gate" in play(flow, {}).error.message


def test_an_effect_is_one_of_those_that_nodes_have() -> None:
    assert form_of(None, None) is None
    assert form_of(None, "external") == {"schema": None, "effect": "external"}
    with pytest.raises(
        InvalidValue, match="none of pure, read, write, external, human"
    ):
        form_of(None, "payment")


def test_the_schemas_of_a_task_have_a_limit_together() -> None:
    schema = {"description": "long" * 15_000}
    fits = [Write("total", 3, schema=schema)] * 69
    assert play(_proposing(*fits), {}).status == "paused"
    played = play(_proposing(*fits, fits[0]), {})
    assert played.status == "failed"
    assert "the schemas of its writes have 4,20" in played.error.message
