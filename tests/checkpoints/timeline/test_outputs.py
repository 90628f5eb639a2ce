"""What each task returned is told from what is kept anyway: journal, held writes, open
supersteps, changes.
"""

from typing import Annotated, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from checkpoints import timeline
from checkpoints.models import Run
from checkpoints.timeline import NodeOutput
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, Send, Sum, registry
from orchestrator.engine.errors import TamperedRow
from tests.support import naive_history
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


class Nothing(BaseModel):
    pass


class State(BaseModel):
    """Channels of several reducers."""

    notes: Annotated[list[str], Append] = []
    risk: Annotated[int, Sum] = 0
    letter: str = ""
    payout: int = 0


BROKEN: set[str] = set()


def graph_of(**settings: Any) -> Graph:
    """alone → (pay beside note) → fan, three tasks → ask, gated."""
    graph = Graph("outputs", input=Nothing, state=State, **settings)

    @graph.node()
    def alone(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": ["alone"], "letter": "Dear", "risk": 2}

    @graph.node(effect="external", idempotent=True)
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        return {"payout": 10, "notes": ["paid"]}

    @graph.node(sends=["fan"])
    def note(state: State, ctx: Any) -> Any:
        if "note" in BROKEN:
            raise RuntimeError("broken")
        return [Send("fan", n) for n in range(3)]

    @graph.node()
    def fan(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"fan {ctx.payload}"], "risk": 1}

    @graph.node(effect="human", gate=Gate(reviewers=["user:ann"]))
    def ask(state: State, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Marta"}

    graph.edge(START, "alone")
    graph.edge("alone", "pay")
    graph.edge("alone", "note")
    graph.edge("pay", END)
    graph.edge("fan", "ask")
    graph.edge("note", END)
    graph.edge("ask", END, when=("approved", "partial", "rejected"))
    registry.replace(graph)
    return graph


def outputs_of(run: Run) -> list[list[tuple[Any, ...]]]:
    rows = [timeline.get_checkpoint(row.id) for row in naive_history.rows_of(run)]
    return [
        [
            (output.node, output.index, output.source, output.output)
            for output in timeline.node_outputs(row)
        ]
        for row in rows
    ]


def put(value: Any) -> dict[str, Any]:
    return {"op": "set", "value": value}


def test_each_task_is_told_from_where_it_is_kept() -> None:
    graph_of(snapshot=1000)
    start, alone, both, fan, ask = outputs_of(
        runs.advance(runs.start("outputs", {}).id)
    )
    assert start == []
    changed = {
        "letter": put("Dear"),
        "notes": {"op": "append", "items": ["alone"]},
        "risk": put(2),
    }
    assert alone == [("alone", 0, "change", {"changes": changed})]
    [paid, noted] = both
    assert paid[:3] == ("pay", 0, "recorded")
    assert [(write["channel"], write["value"]) for write in paid[3]["writes"]] == [
        ("payout", 10),
        ("notes", ["paid"]),
    ]
    assert noted == ("note", 0, "change", {"changes": {}})
    together = {
        "notes": {"op": "append", "items": ["fan 0", "fan 1", "fan 2"]},
        "risk": put(5),
    }
    assert fan == [("fan", None, "together", {"changes": together})]
    assert [(one[0], one[2]) for one in ask] == [("ask", "held")]
    assert [(write["channel"], write["value"]) for write in ask[0][3]["writes"]] == [
        ("letter", "Dear Marta")
    ]


def test_a_change_of_the_whole_state_shows_the_values_of_the_channels_that_were_set() -> (
    None
):
    graph_of(snapshot="bytes")
    [_, alone, *_] = outputs_of(runs.advance(runs.start("outputs", {}).id))
    assert alone[0][3] == {
        "changes": {"letter": put("Dear"), "notes": put(["alone"]), "risk": put(2)}
    }


def test_an_open_superstep_lists_what_finished() -> None:
    graph_of()
    BROKEN.add("note")
    run = runs.advance(runs.start("outputs", {}).id)
    BROKEN.clear()
    assert run.status == "failed"
    last = outputs_of(run)[-1]
    assert [(one[0], one[1], one[2]) for one in last] == [("pay", 0, "kept")]
    assert last[0][3]["writes"][0]["value"] == 10


def test_where_supersteps_left_no_row_the_last_one_is_told() -> None:
    graph_of(checkpoints="none")
    run = runs.advance(runs.start("outputs", {}).id)
    *_, ask = outputs_of(run)
    assert [(one[0], one[2]) for one in ask] == [("ask", "held")]


def test_at_most_three_queries() -> None:
    graph_of()
    run = runs.advance(runs.start("outputs", {}).id)
    for row in [timeline.get_checkpoint(row.id) for row in naive_history.rows_of(run)]:
        with CaptureQueriesContext(connection) as queries:
            node_outputs = timeline.node_outputs(row)
        assert len(queries) <= 3
        assert all(isinstance(output, NodeOutput) for output in node_outputs)


def test_a_change_that_was_altered_is_refused() -> None:
    graph_of()
    run = runs.advance(runs.start("outputs", {}).id)
    row = naive_history.rows_of(run)[1]
    tamper(row, change=b"\x00[]")
    with pytest.raises(TamperedRow):
        timeline.node_outputs(timeline.get_checkpoint(row.id))
