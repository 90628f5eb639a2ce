"""Tokens on edges: when nodes start, how often, and what joins wait for."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine import END, START, Command, Send
from orchestrator.engine.errors import Runaway
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.held_patch import hold_patch
from orchestrator.engine.step.plan import begin, check_limits, plan, skipped, unplanned
from orchestrator.engine.values.identity import Task
from tests.engine.small import (
    ASK,
    approve,
    chain,
    graph_of,
    log_of,
    logs,
    reject,
    rounds,
    run,
)


def test_nodes_of_a_chain_run_one_after_another() -> None:
    played = run(graph_of(chain("a", "b", "c")))
    assert rounds(played) == [["a:1:0"], ["b:1:0"], ["c:1:0"]]
    assert played.status == "completed"


def test_nodes_behind_one_node_run_in_one_superstep_and_join_all_waits_for_both() -> (
    None
):
    played = run(graph_of([*chain("a", "b", "d"), ("a", "c"), ("c", "d")]))
    assert rounds(played) == [["a:1:0"], ["b:1:0", "c:1:0"], ["d:1:0"]]


def test_a_join_waits_for_the_longer_way() -> None:
    played = run(
        graph_of([*chain("a", "b", "d"), ("a", "c"), ("c", "c2"), ("c2", "d")])
    )
    assert rounds(played)[-1] == ["d:1:0"]
    assert len(rounds(played)) == 4


def test_a_join_any_starts_once_per_token() -> None:
    graph = graph_of(
        [*chain("a", "b", "d"), ("a", "c"), ("c", "c2"), ("c2", "d")],
        {"d": {"join": "any"}},
    )
    assert rounds(run(graph))[2:] == [["d:1:0", "c2:1:0"], ["d:2:0"]]


def test_all_tokens_of_a_join_any_start_in_one_superstep() -> None:
    graph = graph_of(
        [*chain("a", "b", "d"), ("a", "c"), ("c", "d")], {"d": {"join": "any"}}
    )
    assert rounds(run(graph))[2] == ["d:1:0", "d:2:0"]


def branching(answer: str) -> Any:
    graph = graph_of([(START, "a"), ("left", "d"), ("right", "d"), ("d", END)])
    graph.branch("a", lambda state: answer, {"l": "left", "r": "right"})
    return graph


def test_the_child_of_a_branch_not_taken_never_runs_and_no_join_waits_for_it() -> None:
    played = run(branching("r"))
    assert rounds(played) == [["a:1:0"], ["right:1:0"], ["d:1:0"]]
    assert played.supersteps[0].skipped == ["left"]


def test_a_router_sees_the_state_after_the_reduce() -> None:
    graph = graph_of([(START, "a"), ("seen", END), ("unseen", END)])
    graph.branch(
        "a",
        lambda state: "yes" if state.log == ["a:1:0"] else "no",
        {"yes": "seen", "no": "unseen"},
    )
    assert log_of(run(graph)) == ["a:1:0", "seen:1:0"]


def test_a_router_may_answer_true_or_false() -> None:
    graph = graph_of([(START, "a"), ("yes", END), ("no", END)])
    graph.branch("a", lambda state: len(state.log) > 5, {True: "yes", False: "no"})
    assert log_of(run(graph)) == ["a:1:0", "no:1:0"]


def test_branches_that_give_one_label_and_target_put_a_token_each() -> None:
    graph = graph_of([*chain("a", "b"), ("c", END)], {"a": {}, "c": {"join": "any"}})
    for _ in range(2):
        graph.branch("a", lambda state: "no", {"no": "c", "yes": END})
    played = run(graph)
    assert played.supersteps[0].pending_edges == ["a>b", "a>c?no", "a>c?no#2"]
    assert rounds(played)[1] == ["c:1:0", "c:2:0", "b:1:0"]


def test_branches_of_one_node_may_both_end_there() -> None:
    graph = graph_of(chain("a", "b"))
    for _ in range(2):
        graph.branch("b", lambda state: "no", {"no": END, "yes": "a"})
    assert run(graph).status == "completed"


def test_a_loop_counts_visits_and_max_supersteps_ends_it_as_failed() -> None:
    graph = graph_of(
        [(START, "a"), ("a", "b"), ("b", "a"), ("b", "c"), ("c", END)], max_supersteps=5
    )
    played = run(graph)
    assert rounds(played)[:3] == [["a:1:0"], ["b:1:0"], ["a:2:0", "c:1:0"]]
    assert played.status == "failed"
    assert len(rounds(played)) == 5
    assert played.error is not None
    assert played.error.type == "Runaway"


def test_max_visits_is_checked_before_the_superstep_none_of_whose_tasks_then_run() -> (
    None
):
    graph = graph_of(
        [(START, "a"), ("a", "b"), ("b", "a"), ("b", END)], {"a": {"max_visits": 2}}
    )
    played = run(graph)
    assert log_of(played) == ["a:1:0", "b:1:0", "a:2:0", "b:2:0"]
    assert played.status == "failed"
    assert "max_visits=2" in played.error.message  # type: ignore[union-attr]


def doubling(**settings: Any) -> Any:
    """A node with two ways back to itself: each superstep has twice the tasks of the
    one before.
    """
    graph = graph_of(
        [(START, "a"), ("a", "a"), ("a", END)], {"a": {"join": "any"}}, **settings
    )
    graph.branch("a", lambda state: "again", {"again": "a", "out": END})
    return graph


def test_a_superstep_that_would_start_more_than_max_tasks_fails_by_name_and_none_of_them_runs() -> (
    None
):
    played = run(doubling(max_tasks=8))
    assert [len(tasks) for tasks in rounds(played)] == [1, 2, 4, 8]
    assert played.status == "failed"
    assert played.error is not None
    assert played.error.type == "Runaway"
    assert played.error.message.startswith(
        "superstep 5 would start 16 tasks of a, more than max_tasks=8"
    )


def test_a_superstep_starts_at_most_ten_thousand_tasks_unless_its_graph_says_otherwise() -> (
    None
):
    compiled = compile(doubling())
    frontier = replace(begin(compiled), tokens={"a>a": 10_000})
    check_limits(compiled, plan(compiled, frontier), 1)
    with pytest.raises(Runaway):
        check_limits(
            compiled, plan(compiled, replace(frontier, tokens={"a>a": 10_001})), 1
        )


def test_a_fan_out_of_a_million_sends_is_counted_and_refused_without_making_its_tasks() -> (
    None
):
    compiled = compile(sending([]))
    frontier = replace(
        begin(compiled), tokens={}, sends=(("work", (None,) * 1_000_000),)
    )
    planned = plan(compiled, frontier)
    assert planned.tasks == 1_000_000
    assert len(planned.starts) == 10_000
    with pytest.raises(Runaway, match="would start 1000000 tasks of work"):
        check_limits(compiled, planned, 1)


def test_a_superstep_that_is_too_large_still_names_each_node() -> None:
    graph = graph_of([(START, "a"), (START, "b"), ("a", END), ("b", END)], max_tasks=1)
    planned = plan(compile(graph), begin(compile(graph)))
    assert [start.task.node for start in planned.starts] == ["a", "b"]


def test_tasks_that_began_under_a_higher_limit_are_still_planned_where_a_run_goes_on() -> (
    None
):
    edges = [(START, "a"), ("a", END)]
    compiled = compile(graph_of(edges, {"a": {"join": "any"}}, max_tasks=2))
    frontier = replace(begin(compiled), tokens={f"{START}>a": 5})
    begun = [Task("a", visit) for visit in range(1, 6)]
    assert unplanned(compiled, frontier, begun) == []


def test_what_a_router_reads_is_read_once_a_superstep() -> None:
    calls = []
    graph = graph_of(
        [(START, "a"), ("a", "a"), ("a", END)], {"a": {"join": "any"}}, max_tasks=8
    )
    graph.branch(
        "a",
        lambda state: calls.append(len(state.log)) or "again",
        {"again": "a", "out": END},
    )
    run(graph)
    assert calls == [1, 3, 7, 15]


def test_settlements_do_not_count_as_supersteps() -> None:
    graph = graph_of(
        chain("a", "b"), {"a": {"approve": "writes", "gate": ASK}}, max_supersteps=2
    )
    played = run(graph, approve)
    assert [step.number for step in played.supersteps] == [1, 1, 2]
    assert played.status == "completed"


def test_a_join_in_a_loop_starts_on_its_first_token() -> None:
    graph = graph_of([(START, "a"), ("b", END)])
    graph.branch(
        "a",
        lambda state: "on" if len(state.log) > 2 else "again",
        {"on": "b", "again": "a"},
    )
    assert log_of(run(graph)) == ["a:1:0", "a:2:0", "a:3:0", "b:1:0"]


def test_joins_that_wait_only_for_each_other_go_in_declared_order() -> None:
    # x and y each have a token and wait for the other's: a circle.
    graph = graph_of(
        [(START, "x"), (START, "y"), ("x", "y"), ("y", "x"), ("x", END), ("y", END)],
        max_supersteps=3,
    )
    assert rounds(run(graph))[0] == ["x:1:0"]


def test_a_circle_goes_at_once_whatever_else_is_alive_and_cannot_reach_it() -> None:
    edges = [(START, "far"), ("far", "far2"), ("far2", END)]
    circle = [
        (START, "x"),
        (START, "y"),
        ("x", "y"),
        ("y", "x"),
        ("x", END),
        ("y", END),
    ]
    assert rounds(run(graph_of([*edges, *circle], max_supersteps=2)))[0] == [
        "far:1:0",
        "x:1:0",
    ]


def test_a_circle_waits_for_work_that_can_reach_it() -> None:
    circle = [
        (START, "x"),
        (START, "y"),
        ("x", "y"),
        ("y", "x"),
        ("x", END),
        ("y", END),
    ]
    graph = graph_of([(START, "near"), ("near", "x"), *circle], max_supersteps=2)
    assert rounds(run(graph)) == [["near:1:0"], ["x:1:0"]]


def test_a_join_that_waits_for_a_circle_is_not_part_of_it() -> None:
    circle = [
        (START, "x"),
        (START, "y"),
        ("x", "y"),
        ("y", "x"),
        ("x", END),
        ("y", END),
    ]
    graph = graph_of(
        [(START, "behind"), ("y", "behind"), ("behind", END), *circle],
        {"behind": {}, "x": {}},
        max_supersteps=2,
    )
    assert rounds(run(graph)) == [["x:1:0"], ["y:1:0"]]


def test_how_often_a_join_runs_does_not_depend_on_when_people_decide() -> None:
    edges = [*chain("a", "ask", "d"), ("a", "c"), ("c", "d")]
    graph = graph_of(edges, {"ask": {"approve": "writes", "gate": ASK}})
    paused = run(graph)
    assert paused.status == "paused"
    assert paused.supersteps[-1].pending_edges == ["c>d"]
    assert log_of(run(graph, approve))[-1] == "d:1:0"


def test_a_gated_visit_of_a_join_does_not_hold_its_next_visit_back() -> None:
    edges = [
        (START, "a"),
        ("a", "j"),
        ("a", "b"),
        ("b", "c"),
        ("c", "j2"),
        ("j", "j2"),
        ("j2", END),
        ("b", "j"),
    ]
    graph = graph_of(edges, {"j": {"approve": "writes", "gate": ASK, "join": "all"}})
    compiled = compile(graph)
    frontier = begin(compiled)
    frontier = type(frontier)(tokens={"a>j": 1}, visits={"j": 1}, waiting={"j:1": ()})
    assert [str(start.task) for start in plan(compiled, frontier).starts] == ["j:2:0"]


def sending(payloads: list[Any], **worker: Any) -> Any:
    def plan_work(state: Any, ctx: Any) -> list[Send]:
        return [Send("work", payload) for payload in payloads]

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [f"{ctx.task}={ctx.payload}"]}

    nodes = {"plan": {"fn": plan_work, "sends": "work"}, "work": {"fn": work, **worker}}
    return graph_of([(START, "plan"), ("work", "join"), ("join", END)], nodes)


def test_one_send_list_to_one_target_is_one_visit_and_its_edges_are_taken_once() -> (
    None
):
    played = run(sending(["x", "y", "z"]))
    assert log_of(played) == ["work:1:0=x", "work:1:1=y", "work:1:2=z", "join:1:0"]


def test_an_empty_send_list_starts_nothing() -> None:
    assert rounds(run(sending([]))) == [["plan:1:0"]]


def test_sends_to_two_targets_are_two_visits() -> None:
    def split(state: Any, ctx: Any) -> Command:
        return Command(
            update={"log": ["split"]}, send=[Send("a", 1), Send("b", 2), Send("a", 3)]
        )

    graph = graph_of(
        [(START, "split"), ("a", END), ("b", END)],
        {"split": {"fn": split, "sends": ["a", "b"]}},
    )
    assert rounds(run(graph)) == [["split:1:0"], ["a:1:0", "a:1:1", "b:1:0"]]


def test_a_send_is_an_earlier_visit_than_a_token_and_never_waits_at_the_join() -> None:
    def split(state: Any, ctx: Any) -> Command:
        return Command(send=[Send("d", "sent")])

    def payload(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [f"{ctx.task}={ctx.payload}"]}

    nodes = {"split": {"fn": split, "sends": "d"}, "d": {"fn": payload}}
    played = run(
        graph_of([*chain("split", "d"), ("split", "long"), ("long", "d")], nodes)
    )
    assert log_of(played) == ["d:1:0=sent", "long:1:0", "d:2:0=None"]


def test_a_send_is_an_earlier_visit_than_a_token_of_the_same_superstep() -> None:
    def payload(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [f"{ctx.task}={ctx.payload}"]}

    nodes = {
        "split": {"fn": lambda state, ctx: [Send("d", "sent")], "sends": "d"},
        "d": {"fn": payload, "join": "any"},
    }
    assert log_of(run(graph_of(chain("split", "d"), nodes))) == [
        "d:1:0=sent",
        "d:2:0=None",
    ]


def test_goto_replaces_the_edges_of_this_visit() -> None:
    def jump(state: Any, ctx: Any) -> Command:
        return Command(goto="c")

    graph = graph_of(
        [*chain("a", "b"), ("c", END)],
        {"a": {"fn": jump, "goto": ["c"]}, "b": {}, "c": {}},
    )
    played = run(graph)
    assert rounds(played) == [["a:1:0"], ["c:1:0"]]
    assert played.supersteps[0].pending_edges == ["a=>c"]


def test_goto_end_ends_that_branch_only() -> None:
    def jump(state: Any, ctx: Any) -> Command:
        return Command(goto=END)

    graph = graph_of(
        [(START, "a"), (START, "b"), ("a", "c"), ("c", END), ("b", END)],
        {"a": {"fn": jump, "goto": [END]}},
    )
    assert rounds(run(graph)) == [["a:1:0", "b:1:0"]]


def test_parallel_writes_reduce_in_declared_order_whatever_finished_first() -> None:
    nodes = {name: {} for name in ("z", "m", "a")}
    graph = graph_of(
        [(START, "a"), (START, "m"), (START, "z"), ("a", END), ("m", END), ("z", END)],
        nodes,
    )
    assert log_of(run(graph)) == ["z:1:0", "m:1:0", "a:1:0"]


def test_nodes_of_one_superstep_see_the_same_state_and_what_they_do_to_it_stays_theirs() -> (
    None
):
    def spoil(state: Any, ctx: Any) -> dict[str, Any]:
        state.log.append("never seen")
        return {"log": [f"{ctx.node} saw {len(state.log)}"]}

    graph = graph_of(
        [(START, "a"), (START, "b"), ("a", END), ("b", END)],
        {"a": {"fn": spoil}, "b": {"fn": spoil}},
    )
    assert log_of(run(graph)) == ["a saw 1", "b saw 1"]


def test_tasks_that_a_graph_would_not_start_are_named_though_a_patch_waits_there() -> (
    None
):
    edges = [(START, "a"), (START, "b"), ("a", END), ("b", END)]
    before = compile(graph_of(edges))
    later = compile(graph_of([*edges, ("a", "b")]))
    begun = [start.task for start in plan(before, begin(before)).starts]
    for frontier in (begin(before), hold_patch(begin(before), 1, 1)):
        assert unplanned(before, frontier, begun) == []
        assert unplanned(later, frontier, begun) == ["b:1:0"]


def test_the_same_frontier_gives_the_same_plan_and_stays_as_it_was() -> None:
    compiled = compile(graph_of([*chain("a", "b", "d"), ("a", "c"), ("c", "d")]))
    frontier = begin(compiled)
    before = frontier.to_json()
    assert plan(compiled, frontier) == plan(compiled, frontier)
    assert frontier.to_json() == before


@pytest.mark.parametrize(
    ("decide", "status"),
    [(approve, "completed"), (reject, "rejected"), (None, "paused")],
)
def test_a_run_ends_completed_rejected_or_paused(decide: Any, status: str) -> None:
    graph = graph_of(
        [(START, "a"), ("a", END)],
        {"a": {"approve": "writes", "gate": ASK, "fn": logs}},
    )
    assert run(graph, decide).status == status


def test_what_can_not_be_reached_any_more_is_known_while_a_patch_waits() -> None:
    compiled = compile(graph_of(chain("a", "b")))
    frontier = hold_patch(begin(compiled), 1, 1)
    assert skipped(compiled, frontier) == []
