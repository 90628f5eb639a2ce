"""The diagnostics partition: what the engine notes about its own work. Never an input of a node or a router."""

from collections.abc import Iterable
from typing import Any

WARNINGS = 50
"""Warnings kept; older ones stay in the log."""


def fresh() -> dict[str, Any]:
    """The diagnostics of a run that has not begun."""
    return {"nodes": {}, "supersteps": 0, "warnings": []}


def after(
    before: dict[str, Any], ran: Iterable[tuple[str, int]], *, supersteps: int, warnings: Iterable[str] = ()
) -> dict[str, Any]:
    """The diagnostics after these (node, milliseconds) have run."""
    nodes = dict(before["nodes"])
    for node, ms in ran:
        old = nodes.get(node, {"ms": 0, "runs": 0})
        nodes[node] = {"ms": old["ms"] + ms, "runs": old["runs"] + 1}
    kept = [*before["warnings"], *warnings][-WARNINGS:]
    return {"nodes": nodes, "supersteps": supersteps, "warnings": kept}
