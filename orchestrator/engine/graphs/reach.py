"""Reach: which nodes can still reach which, computed once per graph, with sets of nodes
as the bits of an integer. For the planner.

Joins need it for each of their incoming edges, in the graph without the join itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.graphs.node import END, START, Edge


@dataclass(frozen=True, slots=True)
class Reach:
    """`bit` of each node; `forward[n]`: n and all that it can reach;
    `into[join][edge]`: all that can reach the source of an incoming edge without
    passing through the join.
    """

    bit: dict[str, int]
    forward: dict[str, int]
    into: dict[str, dict[str, int]]

    def names(self, mask: int) -> list[str]:
        """Return the nodes of a set, in declared order."""
        return [name for name, bit in self.bit.items() if mask & bit]


def reach_of(names: Iterable[str], edges: Sequence[Edge]) -> Reach:
    """Return the reach of a graph. Sends count for reach, but not as incoming edges of
    a join.
    """
    bit: dict[str, int] = {}
    ahead: dict[str, list[str]] = {}
    back: dict[str, list[str]] = {}
    into: dict[str, dict[str, int]] = {}
    for number, name in enumerate(names):
        bit[name] = 1 << number
        ahead[name] = []
        back[name] = []
        into[name] = {}
    for edge in edges:
        if edge.source in bit and edge.target in bit:
            ahead[edge.source].append(edge.target)
            back[edge.target].append(edge.source)

    # Only now that all neighbours are known can the sources of an edge be followed.
    for edge in edges:
        if edge.target in bit and edge.kind != "send":
            into[edge.target][edge.id] = _sources_of(edge, back, bit)
    forward = {name: _spread(name, ahead, bit) for name in bit}
    return Reach(bit, forward, into)


def _sources_of(
    edge: Edge,
    back: Mapping[str, list[str]],
    bit: Mapping[str, int],
) -> int:
    """Return all that can reach the source of an edge without passing its target."""
    # START gives its tokens before anything runs, and a join never waits for itself.
    if edge.source in (START, edge.target):
        return 0
    return _spread(
        edge.source,
        back,
        bit,
        without=edge.target,
    )


def _spread(
    origin: str,
    ways: Mapping[str, list[str]],
    bit: Mapping[str, int],
    *,
    without: str = END,
) -> int:
    """Return `origin` and all that the ways lead to from there, never through
    `without`.
    """
    reached = bit[origin]
    pending = [origin]
    while pending:
        # END is no node, so the default leaves nothing out.
        for name in ways[pending.pop()]:
            if name != without and not reached & bit[name]:
                reached |= bit[name]
                pending.append(name)
    return reached
