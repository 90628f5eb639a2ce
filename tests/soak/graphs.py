"""The graph of the soak: rounds of atomic, idempotent and unrepeatable effects beside a
gate whose base they move.

`expected` says what a run's notes must be at its end; the judge compares.
"""

import random
import time
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.demo.claims.models import ClaimCase
from orchestrator.engine import END, START, Append, Gate, Graph, Sum, Write
from tests.soak import service

ROUNDS = 3
"""Of each run. A run has some eleven supersteps."""


class Job(BaseModel):
    dawdle: float = 0.01


class Book(BaseModel):
    notes: Annotated[list[str], Append] = []
    answers: Annotated[list[str], Append] = []
    rounds: Annotated[int, Sum] = 0
    letter: str = ""


soak = Graph("soak", input=Job, state=Book)


def _dawdle(ctx: Any) -> None:
    """Time in which a process can be killed."""
    time.sleep(random.random() * ctx.input.dawdle)


@soak.node(effect="human", gate=Gate(reviewers=["group:soak"]))
def ask(state: Book, ctx: Any) -> list[Write]:
    return [Write("answers", ["asked"]), Write("letter", "proposed")]


@soak.node()
def answered(state: Book, ctx: Any) -> dict[str, Any]:
    return {"answers": ["answered"]}


@soak.node(effect="write", atomic=True, timeout=5)
def tick(state: Book, ctx: Any) -> dict[str, Any]:
    """Work in the same database: it happens once, with its result or not at all."""
    case, _ = ClaimCase.objects.get_or_create(claim_id=str(ctx.run_id)[:36])
    ClaimCase.objects.filter(id=case.id).update(changes=case.changes + 1)
    _dawdle(ctx)
    return {"notes": [f"tick {case.changes + 1}"]}


@soak.node(effect="external", idempotent=True, timeout=5)
def pay(state: Book, ctx: Any) -> dict[str, Any]:
    _dawdle(ctx)
    service.call("pay", str(ctx.run_id), ctx.idempotency_key)
    _dawdle(ctx)
    return {"notes": [f"pay {ctx.visit}"]}


@soak.node(effect="external", timeout=5)
def tell(state: Book, ctx: Any) -> dict[str, Any]:
    """Return what must never happen twice, and what a person judges where nobody knows."""
    _dawdle(ctx)
    service.call("tell", str(ctx.run_id), ctx.idempotency_key)
    _dawdle(ctx)
    return facts(ctx.visit)


def facts(visit: int) -> dict[str, Any]:
    """Return what `tell` returns; the operator gives the same where it happened. No
    gate guards that channel.
    """
    return {"notes": [f"tell {visit}"]}


@soak.node()
def turn(state: Book, ctx: Any) -> dict[str, Any]:
    """The first round moves the base of what is asked."""
    moved = {"letter": "moved"} if ctx.visit == 1 else {}
    return {"notes": [f"turn {ctx.visit}"], "rounds": 1, **moved}


soak.edge(START, "ask")
soak.edge("ask", "answered")
soak.edge("ask", END, when="rejected")
soak.edge("answered", END)
soak.edge(START, "tick")
for effect in ("pay", "tell"):
    soak.edge("tick", effect)
    soak.edge(effect, "turn")
soak.branch(
    "turn",
    lambda s: "again" if s.rounds < ROUNDS else "done",
    {"again": "tick", "done": END},
)


def expected() -> list[str]:
    """The notes that the rounds of a finished run leave, in order."""
    return [
        f"{what} {n}"
        for n in range(1, ROUNDS + 1)
        for what in ("tick", "pay", "tell", "turn")
    ]
