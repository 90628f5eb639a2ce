"""Graphs whose nodes ask people for a value."""

from collections.abc import Callable
from typing import Any

from orchestrator.engine import END, START, Gate, Graph
from tests.support.small_graphs import graph


def ask_total(state: Any, ctx: Any) -> dict[str, Any]:
    """Propose a letter, and ask for the total."""
    ctx.ask("total", "How much?")
    return {"letter": "Dear"}


def asking(
    name: str = "asking",
    *,
    fn: Callable[[Any, Any], Any] = ask_total,
    settings: dict[str, Any] | None = None,
    **gate: Any,
) -> Graph:
    """People are asked at `ask`; `after` notes the total that it reads then, and
    `declined` that nothing was answered.
    """
    flow = graph(name, **(settings or {}))
    options = {"reviewers": ["group:claims"], **gate}
    flow.node("ask", effect="human", gate=Gate(**options))(fn)
    flow.node("after")(lambda state, ctx: {"notes": [f"total {state.total}"]})
    flow.node("declined")(lambda state, ctx: {"notes": ["declined"]})
    flow.edge(START, "ask")
    flow.edge("ask", "after", when=("approved", "partial"))
    flow.edge("ask", "declined", when="rejected")
    flow.edge("after", END)
    flow.edge("declined", END)
    return flow
