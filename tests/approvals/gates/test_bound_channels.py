"""Which channels a request is bound to, and so which changes may bring it back."""

from typing import Any

import pytest

from approvals.gates.bound_channels import bound_channels, memory_channels
from approvals.gates.request_state import RequestState, load_states
from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import END, START, Gate, Graph, registry
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _asking(
    name: str, proposals: dict[str, Any], shows: list[str] | None = None
) -> Graph:
    """A graph with a gate for each of these proposals, which shows the channels."""
    flow = graph(name)
    gate = Gate(reviewers=["group:claims"], shows=shows or [])

    def ask(node: str, proposal: Any) -> None:
        @flow.node(node, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> Any:
            ctx.memory.put(node, 1, "asked")
            return proposal

        flow.edge(START, node)
        flow.edge(node, END)

    for node, proposal in proposals.items():
        ask(node, proposal)
    return flow


def _states(run: Run) -> list[RequestState]:
    requests = ApprovalRequest.objects.filter(run=run).order_by("node")
    return load_states(list(requests), protection_of(run))


def _requests_bound(flow: Graph, changed: list[str]) -> list[str]:
    """The nodes whose requests a change of these channels may bring back."""
    run = advanced(flow)
    compiled = registry.find_graph(run.fingerprint)
    assert compiled is not None
    bound = bound_channels(_states(run), compiled)
    return [state.request.node for state in bound.requests_bound_to(changed)]


@pytest.mark.parametrize(
    ("changed", "nodes"),
    [
        ([], []),
        (["letter"], ["first"]),
        # Its reducer adds to what is there, so no decision depends on it.
        (["notes"], []),
        (["total", "letter"], ["first"]),
        (["$memory:asked/second"], ["second"]),
        (["$memory:asked/second", "letter"], ["first", "second"]),
    ],
)
def test_a_write_is_bound_to_a_channel_that_it_replaces_and_to_the_trace_it_changes(
    changed: list[str], nodes: list[str]
) -> None:
    proposals = {"first": {"letter": "Dear"}, "second": {"notes": ["Dear"]}}
    assert _requests_bound(_asking("bound", proposals), changed) == nodes


def test_a_request_is_bound_to_what_its_gate_shows() -> None:
    flow = _asking("shown", {"first": {"notes": ["Dear"]}}, shows=["total"])
    assert _requests_bound(flow, ["total"]) == ["first"]
    assert _requests_bound(flow, ["letter"]) == []


def test_the_channels_of_memory_are_those_that_writes_are_held_for() -> None:
    flow = _asking("remembering", {"first": {"letter": "Dear"}, "second": None})
    assert memory_channels(_states(advanced(flow))) == {
        "$memory:asked/first",
        "$memory:asked/second",
    }
    assert memory_channels([]) == frozenset()
