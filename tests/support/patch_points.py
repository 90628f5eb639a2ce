"""Points without rows, at which a patch is typed."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Artifact, Graph
from orchestrator.engine.graphs.compile import compile


class Nothing(BaseModel):
    """No input."""


class Payout(BaseModel):
    amount: Decimal
    account: str = ""
    paid: bool = False


class Receipt(BaseModel):
    status: Literal["sent", "received"]
    number: int
    way: Literal["", "post", "mail"] = ""


class State(BaseModel):
    payout: Payout | None = None
    receipt: Receipt | None = None
    route: Literal["", "small", "large"] = ""
    maybe: int | None = 3
    notes: Annotated[list[str], Append] = []
    more: list[Payout] = []
    anything: dict[str, Any] = {}
    text: str = ""
    letter: Annotated[str, Artifact] = ""


def point(**state: Any) -> Any:
    """A point at which these channels have these values."""
    graph = Graph("typed", input=Nothing, state=State)
    graph.node("a")(lambda state, ctx: None)
    graph.edge(START, "a")
    graph.edge("a", END)
    compiled = compile(graph)
    before = compiled.fresh_state()
    for name, value in state.items():
        before[compiled.channels[name].partition][name] = value
    return SimpleNamespace(
        graph=compiled, going_on=before, checkpoint=SimpleNamespace(seq=1)
    )
