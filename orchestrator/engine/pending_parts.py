"""What a run leans on where it stands: parts of its graph that must still be there when it goes on. Pure.

The ledger keeps it as a short text in the run's row, so that a deployment can be weighed without opening a payload.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.engine.frontier import visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH


@frozen
class Pending:
    """`edges` hold tokens, `nodes` start or belong to an open superstep, `asked` are nodes of which people are asked,
    `writes` channels that kept results of an open superstep write. Each sorted, without doubles.
    """

    edges: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def to_text(self) -> str:
        """As a run's row keeps it; never empty."""
        return json.dumps((self.edges, self.nodes, self.asked, self.writes), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_text(cls, kept: str) -> "Pending | None":
        """Of what `to_text` gave; None of an empty text, where nobody wrote it down. Raises `ValueError` for others."""
        return cls(*(tuple(part) for part in json.loads(kept))) if kept else None


def pending_parts(frontier: Mapping[str, Any], open_superstep: Mapping[str, Any]) -> Pending:
    """Of a frontier and an open superstep in their JSON forms."""
    results = open_superstep.get("results", {})
    tasks = {_node_of(task) for task in (*results, *open_superstep.get("tries", {}))}
    asked = {visit_of(key)[0] for key in frontier["waiting"]}
    asked |= {_node_of(task) for task in open_superstep.get("asked", ())}
    outputs = [one["output"] for one in results.values() if one["output"]]
    return Pending(
        _sorted([*frontier["tokens"], *frontier["errors"]]),
        _sorted({*tasks, *(target for target, _ in frontier["sends"])} - {PATCH}),
        _sorted(asked - {PATCH}),
        _sorted(write["channel"] for output in outputs for write in output["writes"]),
    )


def _node_of(task: str) -> str:
    return task.rsplit(":", 2)[0]


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
