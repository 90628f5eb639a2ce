"""What a node may return, and what is refused with node, channel and reason."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine import END, START, Command, Gate, Send, Write
from orchestrator.engine.errors import ConflictingWrites, InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.output import Output, WriteValue, output_of
from orchestrator.engine.step.plan import begin, plan
from orchestrator.engine.step.reduce import Result, reduce_step
from tests.engine.small import graph_of, log_of, run

COMPILED = compile(
    graph_of(
        [(START, "a"), ("a", "b"), ("b", END)],
        {"a": {"goto": ["b", END], "sends": ["b"]}, "b": {}},
    )
)


def returned(value: Any, **options: Any) -> Output:
    return output_of(COMPILED, "a", value, **options)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, Output()),
        ([], Output()),
        ({}, Output()),
        ({"note": "x"}, Output((WriteValue("note", "x"),))),
        (
            [Write("log", ["x"], "X"), Write("log", ["y"])],
            Output((WriteValue("log", ["x"], "X"), WriteValue("log", ["y"]))),
        ),
        (
            [Send("b", {"n": 1}), Send("b")],
            Output(sends=(("b", {"n": 1}), ("b", None))),
        ),
        (Command(goto="b"), Output(goto=("b",))),
        (Command(goto=["b", END, "b"]), Output(goto=("b", END))),
        (
            Command(update={"note": "x"}, send=[Send("b", 1)]),
            Output((WriteValue("note", "x"),), None, (("b", 1),)),
        ),
    ],
)
def test_what_a_node_may_return(value: Any, output: Output) -> None:
    assert returned(value) == output
    assert Output.from_json(returned(value).to_json()) == output


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"nowhere": 1}, "a writes nowhere, which is no channel"),
        ({"input": {}}, "a writes input, which nothing may write"),
        ({"diagnostics": {}}, "which nothing may write"),
        ({7: 1}, "which is no channel"),
        (
            {"total": "many"},
            "node a, channel total: total: This must be a whole number.",
        ),
        ({"log": "text"}, "channel log"),
        (7, "returned a int"),
        ([Write("note", "x"), Send("b")], "mixed things"),
        ([1], "mixed things"),
        ([Write("note", "x", 7)], "label of a write must be text"),  # type: ignore[arg-type]
        (Command(goto="c"), "names c, which it does not declare in goto="),
        (Command(goto=[]), "say END"),
        ([Send("a")], "names a, which it does not declare in sends="),
        ([Send("b", {"x": {1}})], "the payload for b: x is a set"),
        (Command(send=["b"]), "send must be a list of Send"),  # type: ignore[list-item]
    ],
)
def test_what_is_refused_names_node_and_reason(value: Any, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        returned(value)
    assert words in refused.value.message
    assert refused.value.facts["node"] == "a"


def test_a_value_over_the_limit_names_node_and_channel() -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        returned({"note": "x" * 100}, limit=50)
    assert refused.value.facts["node"] == "a"
    assert refused.value.facts["channel"] == "note"


def parallel(channel: str, first: Any, second: Any) -> Any:
    nodes = {
        "a": {"fn": lambda state, ctx: {channel: first}},
        "b": {"fn": lambda state, ctx: {channel: second}},
    }
    return run(graph_of([(START, "a"), (START, "b"), ("a", END), ("b", END)], nodes))


def test_two_tasks_that_replace_one_channel_in_one_superstep_are_an_error_naming_both() -> (
    None
):
    played = parallel("note", "x", "x")
    assert played.status == "failed"
    assert played.error is not None
    assert played.error.type == ConflictingWrites.__name__
    assert "a:1:0 and b:1:0 both replace note" in played.error.message
    assert played.supersteps == []


def test_last_takes_the_later_one_in_declared_order() -> None:
    assert parallel("latest", "x", "y").state.latest == "y"


def test_one_task_may_replace_a_channel_twice() -> None:
    def twice(state: Any, ctx: Any) -> list[Write]:
        return [Write("note", "x"), Write("note", "y")]

    assert (
        run(graph_of([(START, "a"), ("a", END)], {"a": {"fn": twice}})).state.note
        == "y"
    )


@given(
    st.lists(
        st.lists(st.text("abc", min_size=1, max_size=2), max_size=3),
        min_size=1,
        max_size=5,
    ),
    st.randoms(),
)
def test_writes_reduce_by_node_visit_index_and_position_in_whatever_order_results_came(
    lists: list[list[str]], chance: Any
) -> None:
    sends = {
        "send": {
            "sends": "w",
            "fn": lambda state, ctx: [Send("w", n) for n in range(len(lists))],
        }
    }
    compiled = compile(graph_of([(START, "send"), ("w", END)], {"w": {}, **sends}))
    planned = plan(compiled, begin(compiled))
    output = output_of(compiled, "send", compiled.nodes["send"].fn(None, None))
    step = reduce_step(
        compiled,
        planned,
        compiled.fresh_state(),
        {planned.starts[0].task: Result(output)},
    )
    planned = plan(compiled, step.frontier)
    results = [
        (
            start.task,
            Result(
                output_of(
                    compiled,
                    "w",
                    [Write("log", [text]) for text in lists[start.task.index]],
                )
            ),
        )
        for start in planned.starts
    ]
    chance.shuffle(results)
    before = step.state
    after = reduce_step(compiled, planned, before, dict(results))
    assert after.state["scratch"]["log"] == [
        text for listing in lists for text in listing
    ]
    assert before["scratch"]["log"] == []


def test_a_superstep_is_reduced_only_with_a_result_for_each_task() -> None:
    planned = plan(COMPILED, begin(COMPILED))
    with pytest.raises(InvalidValue, match="no result for a:1:0"):
        reduce_step(COMPILED, planned, COMPILED.fresh_state(), {})


def test_what_did_not_change_is_shared_and_what_changed_is_named() -> None:
    planned = plan(COMPILED, begin(COMPILED))
    state = COMPILED.fresh_state()
    step = reduce_step(
        COMPILED,
        planned,
        state,
        {planned.starts[0].task: Result(returned({"note": "x"}))},
    )
    assert step.changes == {"note": {"op": "set", "value": "x"}}
    assert step.state["scratch"]["log"] is state["scratch"]["log"]
    assert state["scratch"]["note"] == ""
    assert [(f.node, f.visit, f.outcome, f.taken) for f in step.finished] == [
        ("a", 1, None, ("a>b",))
    ]


@pytest.mark.parametrize("answer", ["maybe", None, 1.5, ["yes"]])
def test_an_unknown_label_fails_naming_node_and_router(answer: Any) -> None:
    def choose(state: Any) -> Any:
        return answer

    graph = graph_of([(START, "a"), ("yes", END)])
    graph.branch("a", choose, {"yes": "yes"})
    played = run(graph)
    assert played.status == "failed"
    assert played.error is not None
    assert "choose" in played.error.message
    assert played.error.node == "a"


def test_a_router_that_fails_is_named_even_when_it_fails_with_a_key_error() -> None:
    graph = graph_of([(START, "a"), ("yes", END)])
    graph.branch("a", lambda state: {}["missing"], {"yes": "yes"})
    played = run(graph)
    assert played.error is not None
    assert "failed: KeyError" in played.error.message


def test_a_first_channel_keeps_its_first_value_over_supersteps_even_if_that_is_the_default() -> (
    None
):
    from typing import Annotated

    from pydantic import BaseModel

    from orchestrator.engine import Append, First

    class State(BaseModel):
        first: Annotated[str, First] = "default"
        log: Annotated[list[str], Append] = []

    def write(text: str) -> Any:
        return {"fn": lambda state, ctx: {"first": text}}

    graph = graph_of(
        [(START, "a"), ("a", "b"), ("b", END)],
        {"a": write("default"), "b": write("late")},
        state=State,
    )
    assert run(graph).state.first == "default"
    assert log_of(run(graph)) == []


def test_a_gate_may_be_on_a_pure_node() -> None:
    gate = Gate(reviewers=["user:ann"])
    graph = graph_of(
        [(START, "a"), ("a", END)], {"a": {"approve": "writes", "gate": gate}}
    )
    assert run(graph).status == "paused"
