"""Graphs in which a node pays on the authority of a gate, and what a test paid."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, User

from checkpoints.models import Run
from orchestrator.engine import END, START, Gate, Graph
from tests.support import run_actions
from tests.support.small_graphs import advanced, graph, slice_of

PAID: list[int] = []
"""What was paid, one amount a payment."""


@contextmanager
def payments() -> Iterator[list[int]]:
    """The payments that are made inside."""
    PAID.clear()
    try:
        yield PAID
    finally:
        PAID.clear()


def _propose(state: Any, ctx: Any) -> dict[str, Any]:
    return {"letter": "Dear", "total": 7}


def pay(state: Any, ctx: Any) -> dict[str, Any]:
    PAID.append(state.total)
    return {"notes": [f"paid {state.total}"]}


def paying(
    name: str = "authorised",
    *,
    gate: Gate | None = None,
    propose: Callable[[Any, Any], Any] = _propose,
    fn: Callable[[Any, Any], Any] = pay,
    authority: Any = "review",
    **options: Any,
) -> Graph:
    """People approve a total at `review`, and `pay` pays it on their authority; `wait`
    lies between, so that a slice may end there.
    """
    flow = graph(name)
    flow.node("review", effect="human", gate=gate or Gate(reviewers=["group:claims"]))(
        propose
    )
    flow.node("wait")(lambda state, ctx: None)
    flow.node("pay", **{"effect": "external", "authority": authority, **options})(fn)
    flow.node("refused")(lambda state, ctx: {"notes": ["refused"]})
    flow.edge(START, "review")
    flow.edge("review", "wait")
    flow.edge("wait", "pay")
    flow.edge("pay", END)
    flow.edge("pay", "refused", when="rejected" if authority else None)
    flow.edge("refused", END)
    return flow


def signed(flow: Graph, by: User) -> Run:
    """A run that a person signed, which is about to pay."""
    run = advanced(flow)
    run_actions.sign(run, by, ["approve"] * len(run_actions.pending(run)))
    turns = iter([False, False])
    return slice_of(run, draining=lambda: next(turns, True))


def leave(user: User) -> None:
    """Take the person from the group of reviewers, as an administrator does."""
    user.groups.remove(Group.objects.get(name="claims"))
