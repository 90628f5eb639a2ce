"""What a superstep comes to: writes in declared order, conflicts by name, and what is
held.
"""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Graph, Last
from orchestrator.engine.errors import ConflictingWrites, InvalidValue
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.step.frontier import ErrorInfo
from orchestrator.engine.step.output import Output, WriteValue
from orchestrator.engine.step.plan import begin, plan
from orchestrator.engine.step.reduce import Result, Settled, reduce_step, settle_step
from orchestrator.engine.values.identity import Task
from tests.engine.small import ASK, Nothing


class Letters(BaseModel):
    notes: Annotated[list[str], Append] = []
    name: str = ""
    latest: Annotated[str, Last] = ""


def compiled(**of_second: Any) -> Compiled:
    """Two nodes, first and second, side by side."""
    graph = Graph("two", input=Nothing, state=Letters)
    for node, options in (("first", {}), ("second", of_second)):
        graph.node(node, **options)(lambda state, ctx: None)
        graph.edge(START, node)
        graph.edge(
            node, END, when=("approved", "rejected", "partial") if options else None
        )
    return compile(graph)


def writes(**values: Any) -> Result:
    return Result(
        Output(tuple(WriteValue(channel, value) for channel, value in values.items()))
    )


STATE: Any = {"scratch": {"notes": [], "name": "", "latest": ""}, "artifacts": {}}
FIRST = Task("first", 1, 0)
SECOND = Task("second", 1, 0)


def test_writes_are_reduced_in_declared_order_whichever_task_ended_first() -> None:
    graph = compiled()
    results = {
        SECOND: writes(notes=["b"], latest="b"),
        FIRST: writes(notes=["a"], latest="a"),
    }
    step = reduce_step(graph, plan(graph, begin(graph)), STATE, results)
    assert step.state["scratch"] == {"notes": ["a", "b"], "name": "", "latest": "b"}
    assert STATE["scratch"]["notes"] == [], "arguments are never changed"


def test_two_tasks_that_replace_one_channel_are_refused_with_both_names() -> None:
    graph = compiled()
    with pytest.raises(
        ConflictingWrites, match="first:1:0 and second:1:0 both replace name"
    ) as refused:
        reduce_step(
            graph,
            plan(graph, begin(graph)),
            STATE,
            {FIRST: writes(name="a"), SECOND: writes(name="b")},
        )
    assert refused.value.facts["tasks"] == ["first:1:0", "second:1:0"]


def test_a_superstep_without_a_result_of_each_task_is_refused() -> None:
    graph = compiled()
    with pytest.raises(InvalidValue, match="no result for second:1:0"):
        reduce_step(graph, plan(graph, begin(graph)), STATE, {FIRST: writes(name="a")})


def test_what_a_gate_holds_changes_nothing_until_it_is_settled() -> None:
    graph = compiled(effect="human", gate=ASK)
    held = writes(name="b", notes=["b"])
    results = {FIRST: writes(notes=["a"]), SECOND: Result(held.output, gated=True)}
    step = reduce_step(graph, plan(graph, begin(graph)), STATE, results)
    assert step.state["scratch"]["notes"] == ["a"]
    assert [(write.position, write.channel, write.value) for write in step.held] == [
        (0, "name", "b"),
        (1, "notes", ["b"]),
    ]
    settled = Settled(SECOND, (WriteValue("name", "edited"),), "partial")
    after = settle_step(graph, step.frontier, step.state, [settled])
    assert after.state["scratch"] == {"notes": ["a"], "name": "edited", "latest": ""}
    with pytest.raises(InvalidValue, match="does not wait for a decision"):
        settle_step(graph, after.frontier, after.state, [settled])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            Result(Output(goto=("gone",))),
            "node first goes on to gone, where no edge of it leads",
        ),
        (
            Result(Output(sends=(("gone", 1),))),
            "node first goes on to gone, where no edge of it leads",
        ),
        (
            Result(error=ErrorInfo("first", "KeyError", "x")),
            "node first failed, and no edge leads on from an error",
        ),
    ],
)
def test_a_result_that_was_kept_and_leads_nowhere_in_this_version_is_refused_by_name(
    result: Result, said: str
) -> None:
    graph = compiled()
    with pytest.raises(InvalidValue, match=said):
        reduce_step(
            graph, plan(graph, begin(graph)), STATE, {FIRST: result, SECOND: writes()}
        )
