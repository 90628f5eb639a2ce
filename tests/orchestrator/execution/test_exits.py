"""`sys.exit` in a function of an author ends what called it, as any other exception would; never the worker."""

import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, play, registry
from tests.support.small_graphs import Order, graph

pytestmark = pytest.mark.django_db(transaction=True)


def leave(*_: Any) -> Any:
    sys.exit("it left")


def _graph(**how: Any) -> Any:
    """one node, whose router, gate or body may leave."""
    made = graph("leaving")
    made.node("only", **how.get("node", {}))(how.get("body", lambda state, ctx: {"letter": "x"}))
    made.node("then")(lambda state, ctx: None)
    made.edge(START, "only")
    if "router" in how:
        made.branch("only", how["router"], {"then": "then"})
    else:
        made.edge("only", "then")
    made.edge("then", END)
    registry.replace(made)
    return made


def _ran() -> Run:
    return runs.advance(runs.start("leaving", {}).id)


@pytest.mark.parametrize("where", ["router", "reviewers", "body"])
def test_a_function_that_exits_fails_its_node_and_says_so(where: str) -> None:
    how: dict[str, Any] = {
        "router": {"router": leave},
        "reviewers": {"node": {"effect": "human", "gate": Gate(reviewers=leave)}},
        "body": {"body": leave},
    }[where]
    _graph(**how)
    run = _ran()
    assert run.status == Status.FAILED
    error = run_error.stored_error(run)
    assert error is not None
    assert "it left" in str(error)
    assert runs.resume(run.id).status == Status.QUEUED


def test_a_reducer_that_exits_fails_the_run() -> None:
    class Own(BaseModel):
        total: Annotated[int, leave] = 0

    made = Graph("leaving", input=Order, state=Own)
    made.node("only")(lambda state, ctx: {"total": 1})
    made.edge(START, "only")
    made.edge("only", END)
    registry.replace(made)
    run = _ran()
    assert run.status == Status.FAILED
    assert "SystemExit: it left" in str(run_error.stored_error(run))


def test_a_check_that_exits_means_that_people_decide_and_says_why() -> None:
    _graph(node={"effect": "human", "gate": Gate(reviewers=["user:rita"], needs_approval=leave)})
    run = _ran()
    assert run.status == Status.PAUSED
    request = run.requests.get()
    assert "SystemExit: it left" in str(read_value(request, "why"))


def test_a_graph_that_is_played_fails_the_same_way() -> None:
    for how in ({"router": leave}, {"body": leave}):
        played = play(_graph(**how), {})
        assert played.status == "failed"
        assert "it left" in str(played.error)


def test_a_keyboard_interrupt_is_meant_for_the_process() -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    _graph(router=interrupted)
    run = runs.start("leaving", {})
    with pytest.raises(KeyboardInterrupt):
        runs.advance(run.id)
