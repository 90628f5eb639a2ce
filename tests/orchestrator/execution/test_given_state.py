"""What a node does to what it was given is nobody else's to see, and is not committed."""

import threading
from contextlib import suppress
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Graph
from tests.support.small_graphs import Order, advanced, graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


def failing(name: str) -> Graph:
    """A graph whose first node fails; what stands behind its error edge is to be added."""
    flow = graph(name)

    @flow.node()
    def breaks(state: Any, ctx: Any) -> None:
        raise ValueError("as it was")

    flow.edge(START, "breaks")
    flow.edge("breaks", END)
    return flow


def test_what_a_node_does_to_ctx_error_is_not_seen_by_the_other_node_behind_the_error_edge() -> (
    None
):
    flow = failing("errors-shared")
    first = threading.Event()
    seen = list[str]()

    @flow.node()
    def alters(state: Any, ctx: Any) -> None:
        with suppress(AttributeError):
            ctx.error.message = "changed"
        first.set()

    @flow.node()
    def looks(state: Any, ctx: Any) -> None:
        first.wait(5)
        seen.append(ctx.error.message)

    flow.edge("breaks", "alters", when="error")
    flow.edge("breaks", "looks", when="error")
    flow.edge("alters", END)
    flow.edge("looks", END)
    assert advanced(flow).status == Status.COMPLETED
    assert seen == ["as it was"]


def test_what_a_node_does_to_ctx_error_does_not_reach_the_frontier_that_is_committed() -> (
    None
):
    flow = failing("errors-kept")
    seen = list[str]()

    @flow.node()
    def alters(state: Any, ctx: Any) -> None:
        with suppress(AttributeError):
            ctx.error.message = "changed"

    @flow.node()
    def middle(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def looks(state: Any, ctx: Any) -> None:
        seen.append(ctx.error.message)

    flow.edge("breaks", "alters", when="error")
    flow.edge("breaks", "looks", when="error")
    flow.edge("alters", "middle")
    flow.edge("middle", "looks")
    flow.edge("looks", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert seen == ["as it was"]


class _Deep(BaseModel):
    rows: dict[str, list[int]] = {}
    names: Annotated[list[str], Append] = []
    plain: dict[str, dict[str, list[str]]] = {}


def test_two_tasks_of_a_superstep_do_not_see_what_the_other_does_to_the_state() -> None:
    kept = {"a": [1, 2]}
    flow = Graph("deep-shared", input=Order, state=_Deep)
    first = threading.Event()
    seen = list[Any]()

    @flow.node()
    def fill(state: Any, ctx: Any) -> Any:
        return {"rows": kept, "names": ["x"], "plain": {"a": {"b": ["c"]}}}

    @flow.node()
    def alters(state: Any, ctx: Any) -> None:
        kept["a"].append(99)
        state.rows["a"].append(3)
        state.names.append("mine")
        state.plain["a"]["b"].append("mine")
        first.set()

    @flow.node()
    def looks(state: Any, ctx: Any) -> None:
        first.wait(5)
        seen.append((state.rows, state.names, state.plain))

    flow.edge(START, "fill")
    for name in ("alters", "looks"):
        flow.edge("fill", name)
        flow.edge(name, END)
    registered(flow)
    run = runs.start("deep-shared", {})
    assert runs.advance(run.id).status == Status.COMPLETED
    assert seen == [({"a": [1, 2]}, ["x"], {"a": {"b": ["c"]}})]


@pytest.mark.parametrize("reads", [None, ["rows", "plain"]])
def test_a_key_that_a_node_deletes_from_what_it_reads_is_gone_for_nobody_else(
    reads: list[str] | None,
) -> None:
    rows = {"a": [1, 2], "b": [3]}
    plain = {"a": {"b": ["c"], "d": []}}
    flow = Graph("deep-deleted", input=Order, state=_Deep)
    seen = list[Any]()

    @flow.node()
    def fill(state: Any, ctx: Any) -> Any:
        return {"rows": rows, "plain": plain}

    @flow.node(reads=reads)
    def deletes(state: Any, ctx: Any) -> Any:
        del state.rows["a"]
        del state.plain["a"]["b"]
        return {"names": ["done"]}

    @flow.node()
    def after(state: Any, ctx: Any) -> None:
        seen.append((state.rows, state.plain))

    flow.edge(START, "fill")
    flow.edge("fill", "deletes")
    flow.edge("deletes", "after")
    flow.edge("after", END)
    registered(flow)
    run = runs.advance(runs.start("deep-deleted", {}).id)
    assert run.status == Status.COMPLETED
    assert seen == [(rows, plain)]
    for row in Checkpoint.objects.filter(run=run, seq__gte=1):
        stored = timeline.state_at(row.id)["scratch"]
        assert stored["rows"] == rows
        assert stored["plain"] == plain
    assert list(verify_run(run.id)) == []
