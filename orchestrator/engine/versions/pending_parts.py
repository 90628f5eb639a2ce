"""The parts of its graph that a run needs where it stands: they must still be there
when it goes on. Pure.

The ledger stores them as a short text in the run's row, so that a deployment can be
judged without opening a payload.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.definition import edge_id
from orchestrator.engine.graphs.effect import ERROR, REJECTED
from orchestrator.engine.step.frontier import READY, visit_of
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.values import canonical

_FAULT = f"!{ERROR}"


@frozen
class Pending:
    """The pending parts of a run, each sorted and without duplicates.

    `edges` hold tokens. `nodes` start, or belong to an open superstep. `awaiting_people` are
    nodes about which people are asked. `writes` are channels that stored results of an
    open superstep write. `ways_on` are the edges by which results go on that wait for
    people or for the rest of their superstep: a goto, a send, and "node!error" for an
    error.
    """

    edges: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    awaiting_people: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    ways_on: tuple[str, ...] = ()

    def takes(
        self,
        edge: str,
    ) -> bool:
        """Return whether a stored result goes on by this edge."""
        return edge in self.ways_on or _error_way_of(edge) in self.ways_on

    def to_text(self) -> str:
        """Return the text that the run's row stores; it is never empty."""
        parts = (
            self.edges,
            self.nodes,
            self.awaiting_people,
            self.writes,
            self.ways_on,
        )
        return canonical.encode(parts).decode()

    @classmethod
    def from_text(
        cls,
        text: str,
    ) -> "Pending | None":
        """Read a text of `to_text`; return None for an empty text, which stands for no
        record. Raises `ValueError` for other texts.
        """
        if not text:
            return None
        parts = json.loads(text)
        return cls(*map(tuple, parts))


def pending_parts(
    frontier: Mapping[str, Any],
    open_superstep: Mapping[str, Any],
) -> Pending:
    """Return the pending parts of a frontier and an open superstep, both in their JSON
    forms.
    """
    # A send needs no token: its target is about to start.
    nodes: set[str] = set()
    for target, _ in frontier["sends"]:
        nodes.add(target)
    asked_nodes: set[str] = set()
    writes: set[str] = set()
    ways: set[str] = set()
    if frontier["waiting"]:
        _add_waiting(frontier["waiting"], nodes, asked_nodes, ways)

    # Tasks of the open superstep: results that are stored, and attempts without one.
    for task, result in open_superstep.get("results", {}).items():
        node = _node_of(task)
        nodes.add(node)
        output = result["output"] or {}
        writes.update(write["channel"] for write in output.get("writes", ()))
        ways.update(kept_ways(node, {**output, "error": result["error"]}))
    for tasks in ("tries", "passed"):
        nodes.update(map(_node_of, open_superstep.get(tasks, {})))
    asked_nodes.update(map(_node_of, open_superstep.get("asked", ())))

    # A patch waits like a node, but is none: every version has it.
    return Pending(
        edges=tuple(sorted({*frontier["tokens"], *frontier["errors"]})),
        nodes=tuple(sorted(nodes - {PATCH})),
        awaiting_people=tuple(sorted(asked_nodes - {PATCH})),
        writes=tuple(sorted(writes)),
        ways_on=tuple(sorted(ways)),
    )


def _add_waiting(
    waiting: Mapping[str, Any],
    nodes: set[str],
    asked_nodes: set[str],
    ways: set[str],
) -> None:
    """Add what waits for people, and the edges on which it will continue."""
    for key, parts in waiting.items():
        node, _ = visit_of(key)
        asked_nodes.add(node)
        for part in parts:
            # A call that people approved starts next.
            if part["status"] == READY:
                nodes.add(node)
            # A rejected part goes nowhere, and most others take their node's own edges.
            names_ways = part["goto"] or part["sends"] or part["error"]
            if names_ways and part["status"] != REJECTED:
                ways.update(kept_ways(node, part))


def kept_ways(
    node: str,
    returned: Mapping[str, Any],
) -> list[str]:
    """Return the edges on which a node continues after it returned this goto and these
    sends, or failed with this error. `returned` is in JSON form.
    """
    ways = [edge_id(node, target, "goto") for target in returned.get("goto") or ()]
    for target, _ in returned.get("sends", ()):
        ways.append(edge_id(node, target, "send"))
    if returned.get("error"):
        ways.append(f"{node}{_FAULT}")
    return ways


def lost_ways(
    ways: Iterable[str],
    edges: Collection[str],
) -> list[str]:
    """Return, sorted, the ways on that none of these edges offers."""
    # An error goes on by any error edge of its node, whatever the target.
    leading = {*edges, *map(_error_way_of, edges)}
    return sorted(set(ways) - leading)


def _error_way_of(edge: str) -> str:
    """Return the way of an error along this edge, empty if it is no error edge. A
    label, after `?`, may end like one.
    """
    if "?" in edge or not edge.endswith(_FAULT):
        return ""
    return edge.partition(">")[0] + _FAULT


def _node_of(task: str) -> str:
    return task.rsplit(":", 2)[0]
