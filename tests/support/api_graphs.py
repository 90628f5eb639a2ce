"""Small graphs for the tests of the API: with a gate, and with an effect whose outcome
can be unknown.
"""

from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Gate, Graph, registry


class Claim(BaseModel):
    """What starts a journey."""

    claim_id: str
    amount: int = 0
    evidence: dict[str, Any] | None = None


class State(BaseModel):
    """Notes add up; a payout is replaced."""

    notes: Annotated[list[str], Append] = []
    payout: dict[str, int] = {}
    letter: str = ""


broken: set[str] = set()
"""Names of nodes that fail while they are in it."""


def gated(name: str = "gated", **gate: Any) -> Graph:
    """fetch, then propose, whose three writes `user:rita` decides, then finish."""
    graph = Graph(name, input=Claim, state=State)

    @graph.node(effect="read")
    def fetch(state: State, ctx: Any) -> dict[str, Any]:
        if "fetch" in broken:
            raise RuntimeError("the register is closed")
        return {"notes": [f"claim {ctx.input.claim_id}"]}

    @graph.node(
        effect="human",
        gate=Gate(**{"reviewers": ["user:rita"], "title": "Pay the claim?"} | gate),
    )
    def propose(state: State, ctx: Any) -> dict[str, Any]:
        return {
            "payout": {"amount": ctx.input.amount},
            "letter": "Dear Marta",
            "notes": ["proposed"],
        }

    @graph.node()
    def finish(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": ["finished"]}

    graph.edge(START, "fetch")
    graph.edge("fetch", "propose")
    graph.edge("propose", "finish", when=("approved", "partial", "rejected"))
    graph.edge("finish", END)
    return graph


def paying() -> Graph:
    """pay acts outside and may not act twice: when it breaks, a person must say whether
    it happened.
    """
    graph = Graph("paying", input=Claim, state=State)

    @graph.node(effect="external")
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        if "pay" in broken:
            raise ConnectionError("no answer")
        return {"payout": {"amount": ctx.input.amount}}

    graph.edge(START, "pay")
    graph.edge("pay", END)
    return graph


def register() -> None:
    """Put the graphs into the registry, in the place of those that an earlier test
    left.
    """
    broken.clear()
    registry.replace(gated())
    registry.replace(gated("careful", four_eyes=True))
    registry.replace(paying())
