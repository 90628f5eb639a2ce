"""What is paid for once people have approved it: the end of a graph that the sweep
forks and rewinds.
"""

from collections.abc import Callable
from typing import Any

from orchestrator.engine import END, START, Gate, Graph, Write


def declare(
    graph: Graph,
    outside: Callable[[Any, str], None],
    *,
    gate: Gate,
    when: tuple[str, ...],
) -> Graph:
    """ask (proposes a letter) -> pay (external)"""
    graph.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", "proposed")]
    )

    @graph.node(effect="external", idempotent=True)
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        outside(ctx, "paid")
        return {"notes": [f"paid for {state.letter}"]}

    graph.edge(START, "ask")
    graph.edge("ask", "pay", when=when)
    graph.edge("pay", END)
    return graph
