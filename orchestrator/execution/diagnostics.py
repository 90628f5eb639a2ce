"""The diagnostics partition: what the engine records about its own work. It is never an
input of a node or a router.
"""

from collections.abc import Iterable
from typing import Any

WARNINGS = 50
"""The most warnings that are kept; older ones stay in the log."""


def fresh() -> dict[str, Any]:
    """Return the diagnostics of a run that has not begun."""
    return {"nodes": {}, "supersteps": 0, "warnings": []}


def after(
    before: dict[str, Any],
    ran: Iterable[tuple[str, int]],
    *,
    supersteps: int,
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the diagnostics after these (node, milliseconds) have run."""
    nodes = dict(before["nodes"])
    for node, ms in ran:
        # The earlier diagnostics must stay unchanged.
        earlier = nodes.get(node, {"ms": 0, "runs": 0})
        nodes[node] = {"ms": earlier["ms"] + ms, "runs": earlier["runs"] + 1}
    all_warnings = [*before["warnings"], *warnings]
    return {
        "nodes": nodes,
        "supersteps": supersteps,
        "warnings": all_warnings[-WARNINGS:],
    }
