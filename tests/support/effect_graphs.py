"""Graphs in which effects follow a gate, and how those effects end."""

from collections.abc import Callable
from typing import Any

from orchestrator.engine import END, START, Gate, Graph, Send
from tests.support.small_graphs import graph


def fine(state: Any, ctx: Any) -> None:
    """An effect that works."""


def refused(state: Any, ctx: Any) -> None:
    """An effect that fails each time."""
    raise ValueError("the bank refused it")


def paying(
    fn: Callable[[Any, Any], Any] = fine,
    *,
    name: str = "paid_later",
    times: int = 0,
    gate: dict[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """People approve a total, which `pay` pays, so many `times` at once if that is
    given; then `tell` writes a letter.
    """
    flow = graph(name)

    def count(state: Any, ctx: Any) -> list[Send] | None:
        return [Send("pay", number) for number in range(times)] if times else None

    count_options = {"sends": ["pay"]} if times else {}

    asks = Gate(**{"reviewers": ["group:claims"], **(gate or {})})

    @flow.node("review", effect="human", gate=asks)
    def review(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": state.total + 7}

    flow.node("count", **count_options)(count)
    flow.node("pay", **{"effect": "external", "idempotent": True, **options})(fn)
    flow.node("tell", effect="external", idempotent=True)(fine)
    flow.node("refuse", effect="external", idempotent=True)(fine)
    flow.edge(START, "review")
    flow.edge("review", "count")
    if not times:
        flow.edge("count", "pay")
    flow.edge("pay", "tell")
    flow.edge("tell", END)
    flow.edge("review", "refuse", when="rejected")
    flow.edge("refuse", END)
    return flow
