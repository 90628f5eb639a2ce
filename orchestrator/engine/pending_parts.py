"""What a run leans on where it stands: parts of its graph that must still be there when it goes on. Pure.

The ledger keeps it as a short text in the run's row, so that a deployment can be weighed without opening a payload.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from orchestrator.engine.definition import edge_id
from orchestrator.engine.effect import ERROR, REJECTED
from orchestrator.engine.frontier import visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH

_FAULT = f"!{ERROR}"


@frozen
class Pending:
    """`edges` hold tokens, `nodes` start or belong to an open superstep, `asked` are nodes of which people are asked,
    `writes` channels that kept results of an open superstep write, `kept` the edges by which results go on that wait
    for people or for the rest of their superstep: a goto, a send, and "node!error" for an error. Each sorted, without
    doubles.
    """

    edges: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def takes(self, edge: str) -> bool:
        """Whether a kept result goes on by this edge."""
        return edge in self.kept or _fault_of(edge) in self.kept

    def to_text(self) -> str:
        """As a run's row keeps it; never empty."""
        parts = (self.edges, self.nodes, self.asked, self.writes, self.kept)
        return json.dumps(parts, separators=(",", ":"), ensure_ascii=False)

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
    parts = [(visit_of(key)[0], part) for key, parts in frontier["waiting"].items() for part in parts]
    going = [(node, part) for node, part in parts if part["status"] != REJECTED]
    open_ = [(_node_of(task), {**(one["output"] or {}), "error": one["error"]}) for task, one in results.items()]
    return Pending(
        _sorted([*frontier["tokens"], *frontier["errors"]]),
        _sorted({*tasks, *(target for target, _ in frontier["sends"])} - {PATCH}),
        _sorted(asked - {PATCH}),
        _sorted(write["channel"] for output in outputs for write in output["writes"]),
        _sorted(edge for node, part in (*going, *open_) for edge in kept_ways(node, part)),
    )


def kept_ways(node: str, returned: Mapping[str, Any]) -> list[str]:
    """The edges by which a node goes on that returned this goto and these sends, or failed with this error; in its JSON
    form.
    """
    found = [edge_id(node, target, "goto") for target in returned.get("goto") or ()]
    found += [edge_id(node, target, "send") for target, _ in returned.get("sends", ())]
    return [*found, f"{node}{_FAULT}"] if returned.get("error") else found


def lost_ways(kept: Iterable[str], edges: Collection[str]) -> list[str]:
    """Those of kept ways that lead along none of these edges, sorted."""
    there = {*edges, *map(_fault_of, edges)}
    return sorted({*kept} - there)


def _fault_of(edge: str) -> str:
    """The way of an error along this edge; empty where it is none. A label, behind `?`, may end like one."""
    return edge.partition(">")[0] + _FAULT if edge.endswith(_FAULT) and "?" not in edge else ""


def _node_of(task: str) -> str:
    return task.rsplit(":", 2)[0]


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
