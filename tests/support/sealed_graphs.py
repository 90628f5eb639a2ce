"""A small graph with a gate and an effect, plain or encrypted, and hands that change
its rows past everybody.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, Write, registry
from tests.graphs_app.graphs import Order, outside


class Notes(BaseModel):
    notes: Annotated[list[str], Append] = []
    payout: dict[str, Any] = {}
    letter: str = ""


broken: set[str] = set()
"""Names of nodes that fail while they are in it."""


def graph(*, encrypted: bool = False, **gate: Any) -> Graph:
    """propose, whose two writes `group:claims` decides; pay, which acts outside; then
    close.
    """
    flow = Graph("watched", input=Order, state=Notes, encrypted=encrypted)

    @flow.node(
        effect="human",
        gate=Gate(reviewers=["group:claims"], title="Pay {input.number}?", **gate),
    )
    def propose(state: Notes, ctx: Any) -> list[Write]:
        return [
            Write("payout", {"amount": "10"}, label="payout"),
            Write("letter", "Dear Ada", label="letter"),
        ]

    @flow.node(effect="external")
    def pay(state: Notes, ctx: Any) -> dict[str, Any]:
        if "pay" in broken:
            raise RuntimeError("the line broke")
        outside(ctx, f"paid {state.payout}")
        return {"notes": ["paid"]}

    @flow.node()
    def close(state: Notes, ctx: Any) -> dict[str, Any]:
        if "close" in broken:
            raise RuntimeError("close is broken")
        return {"notes": ["closed"]}

    flow.edge(START, "propose")
    flow.edge("propose", "pay")
    flow.edge("pay", "close")
    flow.edge("close", END)
    return flow


def started(folder: Path, **settings: Any) -> Run:
    """A run that waits for its reviewers."""
    registry.replace(graph(**settings))
    return runs.advance(runs.start("watched", {"folder": str(folder)}).id)
