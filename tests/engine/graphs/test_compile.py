"""A compiled graph answers what planner, runner and pages ask, and never changes."""

import pytest

from orchestrator.engine import END, START
from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.values.identity import Task
from tests.engine.small import ASK, graph_of

EDGES = [(START, "a"), ("a", "b"), ("a", "c"), ("b", END), ("c", END)]


def test_nodes_are_numbered_as_declared_and_tasks_are_ordered_by_it() -> None:
    compiled = compile(graph_of(EDGES))
    assert compiled.order == {"a": 0, "b": 1, "c": 2}
    tasks = [
        Task("c", 1, 0),
        Task("a", 2, 0),
        Task("a", 1, 1),
        Task("b", 1, 0),
        Task("a", 1, 0),
    ]
    assert [str(t) for t in sorted(tasks, key=compiled.task_order)] == [
        "a:1:0",
        "a:1:1",
        "a:2:0",
        "b:1:0",
        "c:1:0",
    ]


def test_incoming_edges_and_ways_out_are_those_that_were_declared() -> None:
    compiled = compile(graph_of(EDGES))
    assert [edge.source for edge in compiled.incoming["b"]] == ["a"]
    assert [edge.target for edge in compiled.ways["a"].plain] == ["b", "c"]


def test_outcomes_of_a_gate_lead_where_their_edges_say() -> None:
    edges = [
        (START, "ask"),
        ("ask", "b", "approved"),
        ("ask", "c", ("rejected", "partial")),
        ("b", END),
        ("c", END),
    ]
    ways = compile(graph_of(edges, {"ask": {"effect": "human", "gate": ASK}})).ways[
        "ask"
    ]
    assert {
        when: [edge.target for edge in chosen] for when, chosen in ways.when.items()
    } == {
        "approved": ["b"],
        "rejected": ["c"],
        "partial": ["c"],
    }


def test_the_same_declaration_has_the_same_fingerprint_and_another_edge_another() -> (
    None
):
    assert compile(graph_of(EDGES)).fingerprint == compile(graph_of(EDGES)).fingerprint
    assert (
        compile(graph_of(EDGES)).fingerprint
        != compile(graph_of([*EDGES, ("b", "c")])).fingerprint
    )


def test_a_graph_that_cannot_run_is_refused_with_all_its_faults() -> None:
    with pytest.raises(InvalidGraph) as refused:
        compile(graph_of([("a", "b"), ("b", "a")]))
    assert "START" in refused.value.message
    assert "END" in refused.value.message
