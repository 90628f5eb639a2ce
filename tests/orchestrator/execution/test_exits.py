"""What a function of an author raises ends what called it, never the worker: also
`sys.exit`, and an error whose text cannot be read. What it tells is kept without
secrets.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, play, registry
from tests.support.run_actions import event_payloads
from tests.support.small_graphs import Order, graph

pytestmark = pytest.mark.django_db(transaction=True)


TOKEN = "s3cret-token"


class Mute(Exception):
    """Its text cannot be read, nor what else it seems to say."""

    facts = ("not", "a", "mapping")

    def __str__(self) -> str:
        raise ValueError("no text")


def leave(*_: Any) -> Any:
    sys.exit("it left")


def stay_mute(*_: Any) -> Any:
    raise Mute


def tell(*_: Any) -> Any:
    raise ValueError(f"refused with {TOKEN} \x00 \ud800")


def _graph(**how: Any) -> Any:
    """Return a graph of one node whose router, gate or body may exit."""
    flow = graph("leaving")
    flow.node("only", **how.get("node", {}))(
        how.get("body", lambda state, ctx: {"letter": "x"})
    )
    flow.node("then")(lambda state, ctx: None)
    flow.edge(START, "only")
    if "router" in how:
        flow.branch("only", how["router"], {"then": "then"})
    else:
        flow.edge("only", "then")
    flow.edge("then", END)
    registry.replace(flow)
    return flow


def _ran() -> Run:
    return runs.advance(runs.start("leaving", {}).id)


@pytest.fixture(autouse=True)
def with_a_secret(configure: Callable[..., None]) -> None:
    configure(SECRETS={"TOKEN": TOKEN})


WAYS: dict[str, tuple[Callable[..., Any], str]] = {
    "exits": (leave, "it left"),
    "is mute": (stay_mute, "its text cannot be shown"),
    "tells a secret": (tell, "refused with ••• ? ?"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Callable[..., Any], str]:
    """A function of an author, and what is to be read of it."""
    return WAYS[request.param]


@pytest.mark.parametrize("where", ["router", "reviewers", "body"])
def test_a_function_that_breaks_fails_its_node_and_says_so(
    where: str, way: tuple[Callable[..., Any], str]
) -> None:
    breaks, text = way
    how: dict[str, Any] = {
        "router": {"router": breaks},
        "reviewers": {"node": {"effect": "human", "gate": Gate(reviewers=breaks)}},
        "body": {"body": breaks},
    }[where]
    _graph(**how)
    run = _ran()
    assert run.status == Status.FAILED
    error = run_error.stored_error(run)
    assert error is not None
    assert text in str(error)
    assert TOKEN not in str(
        [error, *event_payloads(run, "run_failed"), *event_payloads(run, "node_failed")]
    )
    assert runs.resume(run.id).status == Status.QUEUED


def test_a_reducer_that_breaks_fails_the_run(
    way: tuple[Callable[..., Any], str],
) -> None:
    breaks, text = way

    class Own(BaseModel):
        total: Annotated[int, breaks] = 0

    flow = Graph("leaving", input=Order, state=Own)
    flow.node("only")(lambda state, ctx: {"total": 1})
    flow.edge(START, "only")
    flow.edge("only", END)
    registry.replace(flow)
    run = _ran()
    assert run.status == Status.FAILED
    assert text in str(run_error.stored_error(run))


def test_a_check_that_breaks_means_that_people_decide_and_says_why(
    way: tuple[Callable[..., Any], str],
) -> None:
    breaks, text = way
    _graph(
        node={
            "effect": "human",
            "gate": Gate(reviewers=["user:rita"], needs_approval=breaks),
        }
    )
    run = _ran()
    assert run.status == Status.PAUSED
    request = run.requests.get()
    assert text in str(read_value(request, "why"))


def test_the_reason_that_a_check_gives_is_kept_without_secrets() -> None:
    def check(*_: Any) -> str:
        return f"it names {TOKEN}"

    _graph(
        node={
            "effect": "human",
            "gate": Gate(reviewers=["user:rita"], needs_approval=check),
        }
    )
    assert read_value(_ran().requests.get(), "why") == "it names •••"


def test_a_graph_that_is_played_fails_the_same_way() -> None:
    for breaks, text in ((leave, "it left"), (stay_mute, "its text cannot be shown")):
        for how in ({"router": breaks}, {"body": breaks}):
            played = play(_graph(**how), {})
            assert played.status == "failed"
            assert text in str(played.error)


def test_a_keyboard_interrupt_is_meant_for_the_process() -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    _graph(router=interrupted)
    run = runs.start("leaving", {})
    with pytest.raises(KeyboardInterrupt):
        runs.advance(run.id)
