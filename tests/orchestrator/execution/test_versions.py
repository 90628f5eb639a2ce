"""A run is pinned to the graph that it was started with; another content under the same name stops it, by name."""

import pytest

from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support.small_graphs import graph, registered, started

pytestmark = pytest.mark.django_db(transaction=True)


def _graph(*nodes: str) -> object:
    made = graph("versioned")
    for name in nodes:
        made.node(name)(lambda state, ctx: {"notes": [ctx.node]})
    for source, target in zip((START, *nodes), (*nodes, END), strict=True):
        made.edge(source, target)
    return made


def test_a_run_whose_graph_is_registered_with_other_content_stops_as_incompatible_and_says_what_to_do() -> None:
    run = started(_graph("a"))
    registered(_graph("a", "b"))
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == (Status.INCOMPATIBLE, "incompatible_graph")
    error = stored_error(run)
    assert error is not None
    assert "deploy the version" in error["message"]


def test_an_incompatible_run_goes_on_where_its_graph_is_registered_again() -> None:
    run = started(_graph("a"))
    registered(_graph("a", "b"))
    runs.advance(run.id)
    registered(_graph("a"))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
