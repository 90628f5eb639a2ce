"""The graphs, people and keys of the old database. The script that made it used this
file, and so do the processes that go on with it; so nothing of it that is part of a
graph's fingerprint may change.
"""

import base64
import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Gate, Graph, Retry, Sum, Write

TOKENS = {
    name: f"cst_that-{name}-had-in-the-old-database"
    for name in ("olive", "rita", "ravi")
}
"""Olive starts and steers; Rita and Ravi review."""
CELLAR = "01234567-89ab-7cde-8f01-23456789abcd"
"""What a store keeps checkpoints under that belong to no run."""


def _keys(letter: bytes) -> str:
    return json.dumps({"only-for-tests": base64.b64encode(letter * 32).decode()})


ENVIRONMENT = {
    "COUNTERSIGN_SIGNING_KEYS": _keys(b"s"),
    "COUNTERSIGN_ENCRYPTION_KEYS": _keys(b"e"),
}
"""What a process needs to read the old database."""


class Order(BaseModel):
    number: str
    amount: int = 10


class Account(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Annotated[int, Sum] = 0
    payout: dict[str, Any] | None = None
    letter: str = ""


def _broken() -> bool:
    """Return whether the old database is being made: then the nodes fail that are
    mended afterwards.
    """
    return os.environ.get("OLD_DATABASE_BROKEN") == "yes"


def _outside(ctx: Any, what: str) -> None:
    """An effect: a line in a file, with the key of the call."""
    with Path(os.environ["OLD_DATABASE_OUTSIDE"]).open("a") as file:
        file.write(f"{ctx.input.number} {what} {ctx.idempotency_key}\n")


def _payment(name: str, *, quorum: int = 1, encrypted: bool = False) -> Graph:
    """prepare; propose, whose three writes `group:claims` decides; then pay or refuse."""
    graph = Graph(name, input=Order, state=Account, encrypted=encrypted)

    @graph.node()
    def prepare(state: Account, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"order {ctx.input.number}"], "total": ctx.input.amount}

    @graph.node(
        effect="human",
        gate=Gate(
            reviewers=["group:claims"], title="Pay {input.number}?", quorum=quorum
        ),
    )
    def propose(state: Account, ctx: Any) -> list[Write]:
        return [
            Write("payout", {"amount": state.total}, label="the payout"),
            Write("letter", "Dear customer", label="the letter"),
            Write("notes", ["agreed"], label="a note"),
        ]

    @graph.node(effect="external", idempotent=True)
    def pay(state: Account, ctx: Any) -> dict[str, Any]:
        _outside(ctx, "paid")
        return {"notes": [f"paid {(state.payout or {}).get('amount', 0)}"]}

    @graph.node()
    def refuse(state: Account, ctx: Any) -> dict[str, Any]:
        return {"notes": ["refused"]}

    graph.edge(START, "prepare")
    graph.edge("prepare", "propose")
    graph.edge("propose", "pay", when=("approved", "partial"))
    graph.edge("propose", "refuse", when="rejected")
    graph.edge("pay", END)
    graph.edge("refuse", END)
    return graph


payment = _payment("old_payment")
payment_of_two = _payment("old_payment_of_two", quorum=2)
secret_payment = _payment("old_secret_payment", encrypted=True)

# --- a loop, whose worker dies on its way ---

loop = Graph("old_loop", input=Order, state=Account)


@loop.node()
def step(state: Account, ctx: Any) -> dict[str, Any]:
    if _broken() and ctx.input.number == "dies" and state.total == 12:
        os._exit(1)
    return {"total": 1, "notes": [f"{ctx.visit}: {'long ' * 40}"]}


loop.edge(START, "step")
loop.branch(
    "step",
    lambda state: "on" if state.total < 20 else "over",
    {"on": "step", "over": END},
)

# --- a node that fails beside an effect that happened, and has read memory ---

fragile = Graph("old_fragile", input=Order, state=Account, memory="journaled")


@fragile.node(effect="external")
def order(state: Account, ctx: Any) -> dict[str, Any]:
    _outside(ctx, "ordered")
    return {"notes": ["ordered"]}


@fragile.node()
def ask(state: Account, ctx: Any) -> dict[str, Any]:
    sky = ctx.memory.get("sky", "facts")
    if _broken():
        raise RuntimeError("ask is broken")
    return {"notes": [f"the sky was {sky.content}"]}


@fragile.node()
def end(state: Account, ctx: Any) -> dict[str, Any]:
    return {"notes": [f"the sky is {ctx.memory.get('sky', 'facts').content}"]}


fragile.edge(START, "order")
fragile.edge(START, "ask")
fragile.edge("order", "end")
fragile.edge("ask", "end")
fragile.edge("end", END)

# --- an effect of which nobody knows whether it happened ---

letter = Graph("old_letter", input=Order, state=Account)


@letter.node(effect="external")
def send(state: Account, ctx: Any) -> dict[str, Any]:
    _outside(ctx, "sent")
    if _broken():
        raise ConnectionError("no answer")
    return {"letter": "sent"}


letter.edge(START, "send")
letter.edge("send", END)

# --- a pause between two attempts that is long enough to wait without a worker ---

patient = Graph("old_patient", input=Order, state=Account)


@patient.node(retry=Retry(attempts=2, backoff=6, jitter=0))
def second_time(state: Account, ctx: Any) -> dict[str, Any]:
    if ctx.attempt < 2:
        raise RuntimeError("not yet")
    return {"notes": ["second time"]}


patient.edge(START, "second_time")
patient.edge("second_time", END)

# --- memory ---

remember = Graph("old_remember", input=Order, state=Account)


@remember.node()
def put(state: Account, ctx: Any) -> None:
    ctx.memory.put("sky", ctx.input.number, "facts", strength=0.5)


remember.edge(START, "put")
remember.edge("put", END)

recall = Graph("old_recall", input=Order, state=Account)


@recall.node()
def read(state: Account, ctx: Any) -> dict[str, Any]:
    known = ctx.memory.get("sky", "facts")
    hits = ctx.memory.search("grey", "facts")
    return {
        "notes": [
            f"version {known.version}: {known.content}",
            *(trace.key for trace in hits),
        ]
    }


recall.edge(START, "read")
recall.edge("read", END)
