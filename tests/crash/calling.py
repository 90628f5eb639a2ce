"""A graph of the sweep whose nodes are called once people approved it, beside a branch
that changes the state meanwhile.
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from orchestrator.engine import END, START, Gate, Graph


class Sum(BaseModel):
    letter: str
    total: int


def prepare(state: Any, ctx: Any) -> Sum:
    return Sum(letter=state.letter, total=state.total)


def declare(
    graph: Graph,
    outside: Callable[[Any, str], None],
    *,
    gate: Gate,
    when: tuple[str, ...],
) -> Graph:
    """Add a call of each kind: one that may be made again, one that may not, and one
    that needs nobody.
    """

    def called(what: str) -> Callable[[Any, Any], dict[str, Any]]:
        def call(state: Any, ctx: Any) -> dict[str, Any]:
            outside(ctx, what)
            return {"notes": [f"{what} {ctx.args.letter} {ctx.args.total}"]}

        return call

    asked = {"approve": "call", "args": Sum, "prepare": prepare, "gate": gate}
    free = Gate(reviewers=gate.reviewers, needs_approval=lambda state, call: False)
    graph.node("pay", effect="external", idempotent=True, **asked)(called("paid"))
    graph.node("letter", effect="external", **asked)(called("letter"))
    graph.node("knock", effect="external", **{**asked, "gate": free})(called("knocked"))
    graph.node("move")(lambda state, ctx: {"total": 7, "letter": "moved"})
    graph.node("join")(lambda state, ctx: {"notes": ["join"]})
    for node in ("pay", "letter", "knock"):
        graph.edge(START, node)
        graph.edge(node, "join", when=when)
    graph.edge(START, "move")
    graph.edge("move", "join")
    graph.edge("join", END)
    return graph
