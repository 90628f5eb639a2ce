"""Who can still reach what, worked out once per graph: sets of nodes as the bits of an integer. The planner asks.

Joins need it for each of their incoming edges, in the graph without the join itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.node import END, START, Edge


@dataclass(frozen=True, slots=True)
class Reach:
    """`bit` of each node; `forward[n]`: n and all that it can reach; `into[join][edge]`: all that can reach the
    source of an incoming edge without passing through the join.
    """

    bit: dict[str, int]
    forward: dict[str, int]
    into: dict[str, dict[str, int]]

    def names(self, mask: int) -> list[str]:
        """The nodes of a set, in declared order."""
        return [name for name, bit in self.bit.items() if mask & bit]


def reach_of(names: Iterable[str], edges: Sequence[Edge]) -> Reach:
    """Work it out. Sends count for reaching; they are no incoming edges of a join."""
    bit = {name: 1 << n for n, name in enumerate(names)}
    inner = [edge for edge in edges if edge.source in bit and edge.target in bit]
    ahead = {name: [e.target for e in inner if e.source == name] for name in bit}
    back = {name: [e.source for e in inner if e.target == name] for name in bit}
    into = {name: {e.id: _into(e, back, bit) for e in edges if e.target == name and e.kind != "send"} for name in bit}
    return Reach(bit, {name: _spread(name, ahead, bit) for name in bit}, into)


def _into(edge: Edge, back: Mapping[str, list[str]], bit: Mapping[str, int]) -> int:
    if edge.source in (START, edge.target):
        return 0
    return _spread(edge.source, back, bit, without=edge.target)


def _spread(origin: str, ways: Mapping[str, list[str]], bit: Mapping[str, int], *, without: str = END) -> int:
    """`origin` and everything that the ways lead to from there, never through `without`."""
    found, todo = bit[origin], [origin]
    while todo:
        for name in ways[todo.pop()]:
            if name != without and not found & bit[name]:
                found |= bit[name]
                todo.append(name)
    return found
