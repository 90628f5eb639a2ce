"""Who decides when a graph is played: each waiting request is asked once at a pause."""

from orchestrator.engine import END, START, Gate
from tests.engine.small import graph_of, run


def test_each_waiting_request_is_asked_once_at_a_pause() -> None:
    asked: list[str] = []
    nodes = {name: {"effect": "human", "gate": Gate(reviewers=["user:ann"])} for name in ("a", "b")}
    graph = graph_of([(START, "a"), (START, "b"), ("a", END), ("b", END)], nodes)
    played = run(graph, lambda request: asked.append(request.node))
    assert asked == ["a", "b"]
    assert [gate.node for gate in played.gates] == ["a", "b"]
