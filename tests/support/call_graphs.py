"""Graphs whose nodes are called only after people have approved the arguments, and what
the calls of a test left behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, Field

from orchestrator.engine import END, START, Append, Gate, Graph, Send
from orchestrator.engine.graphs.gate import Show
from tests.support.small_graphs import Order


class Account(BaseModel):
    amount: Decimal = Decimal(10)
    notes: Annotated[list[str], Append] = []
    people: list[str] = ["ada"]


class Payment(BaseModel):
    """What is paid to whom."""

    payee: str = Field(min_length=1)
    amount: Decimal


CALLS: list[tuple[Any, Any, str]] = []
"""(args, amount in the state, idempotency key) of each call that was made."""


@contextmanager
def calls() -> Iterator[list[tuple[Any, Any, str]]]:
    """The calls that are made inside."""
    CALLS.clear()
    try:
        yield CALLS
    finally:
        CALLS.clear()


def prepare(state: Any, ctx: Any) -> Payment:
    return Payment(payee=ctx.payload or "ada", amount=state.amount)


def pay(state: Any, ctx: Any) -> dict[str, Any]:
    """Pay, and note it."""
    CALLS.append((ctx.args, state.amount, ctx.idempotency_key))
    return {"notes": [f"paid {ctx.args.amount} to {ctx.args.payee}"]}


def noting(text: str, **options: Any) -> Callable[[Any, Any], dict[str, Any]]:
    """A node that notes a text and writes further channels."""

    def note(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [text], **options}

    return note


SHOWN = {"$call": Show(label="Pay {amount} to {payee}")}


def call_gate(**options: Any) -> Gate:
    reviewers = {"reviewers": ["group:claims"], "writes": SHOWN}
    return Gate(**{**reviewers, **options})


def paying(
    name: str = "paying",
    *,
    fn: Callable[[Any, Any], Any] = pay,
    gate: Gate | None = None,
    node: dict[str, Any] | None = None,
    **settings: Any,
) -> Graph:
    """A graph that pays once people have approved, and then says whether it did."""
    graph = Graph(name, input=Order, state=Account, **settings)
    options: dict[str, Any] = {"effect": "external", **(node or {})}
    graph.node(
        "pay",
        approve="call",
        gate=gate or call_gate(),
        args=Payment,
        prepare=options.pop("prepare", prepare),
        **options,
    )(fn)
    graph.node("paid")(noting("paid"))
    graph.node("refused")(noting("refused"))
    graph.edge(START, "pay")
    graph.edge("pay", "paid", when=("approved", "partial"))
    graph.edge("pay", "refused", when="rejected")
    graph.edge("paid", END)
    graph.edge("refused", END)
    return graph


def paying_beside(name: str = "paying_beside", **options: Any) -> Graph:
    """The same, beside a branch that changes the state while the call waits."""
    graph = paying(name, **options)
    graph.node("first")(noting("first"))
    graph.node("raises")(noting("raised", amount=Decimal(99)))
    graph.edge(START, "first")
    graph.edge("first", "raises")
    graph.edge("raises", END)
    return graph


def paying_many(
    name: str = "paying_many",
    *,
    payees: Sequence[str] = ("ada", "bob", "cyd"),
    **options: Any,
) -> Graph:
    """The same, for each of several people at once."""
    graph = paying(name, **options)
    graph.edges[:] = [edge for edge in graph.edges if edge.source != START]

    @graph.node("split", sends="pay")
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("pay", payee) for payee in payees]

    graph.edge(START, "split")
    return graph
