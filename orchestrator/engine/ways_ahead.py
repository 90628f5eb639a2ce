"""Which nodes of a run can still begin, by which ways, and which of them without the gates that they came behind. Pure.

`differences` asks here for a run that stands at a point, over the structures of two versions.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.node import START
from orchestrator.engine.pending_parts import Pending

_EDGE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(=>|~>|>)([A-Za-z_][A-Za-z0-9_.-]*)")
_NEEDS = {"!error": 0, "!rejected": 1, "!approved": 3}
_NEEDS_CONSENT = 2
"""What people must have said before an edge of a gated node is taken: nothing, anything, yes to a part (as of every
edge that names no outcome), yes to all.
"""
_BEHIND = {1: "it", 2: "its approval", 3: "its approval in full"}
_BEHIND_ONE = {1: "one of them", 2: "the approval of one of them", 3: "the approval in full of one of them"}


@frozen
class EdgeWay:
    """An edge: where it leads from and to, and what people must have said where it leaves a gated node."""

    source: str
    target: str
    needs: int
    is_send: bool = False


def read_edge(edge: str) -> EdgeWay:
    found = _EDGE.match(edge)
    if found is None:
        return EdgeWay("", "", _NEEDS_CONSENT)
    return EdgeWay(found[1], found[3], _NEEDS.get(edge[found.end() :], _NEEDS_CONSENT), found[2] == "~>")


@dataclass
class WaysAhead:
    """Which nodes can still begin, and which edges hold something, for a run that stands at this point."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    at: Pending | None

    def __post_init__(self) -> None:
        at = self.at or Pending()
        self._gone = {edge: read_edge(edge).target for edge in at.edges}
        # Of several items of a node some may be asked while others have yet to begin.
        starts = {*self._gone.values(), *at.nodes}
        self._starts = starts if self.at else {START}
        self._asked = {*at.asked}
        self._ways = tuple([read_edge(edge) for edge in one["edges"]] for one in (self.old, self.new))
        self._has_new_ways = not {*self._ways[1]} <= {*self._ways[0]}
        self._before, self._then = (_reached(ways, starts, self._asked) for ways in self._ways)

    def begins(self, node: str) -> bool:
        """Whether the node can begin in the new version."""
        return self.at is None or node in self._then

    def began(self, node: str) -> bool:
        """Whether the node could have begun in the old one."""
        return self.at is None or node in self._before

    def round_gate(self, gate: str) -> Iterator[tuple[str, list[str]]]:
        """The nodes that began only behind this gate in the old version, and can begin without it in the new one, by
        what they came behind. Where the run stands behind the gate itself, that was passed.
        """
        told: set[str] = set()
        for needs, behind in _BEHIND.items():
            lost = self._begin_without({gate: needs}) - told
            told |= lost
            if names := self._declared(lost):
                yield behind, names

    def round_gates(self) -> Iterator[tuple[list[str], str, list[str]]]:
        """The same of nodes that began behind one or another of several gates: these, what was said there, the nodes.
        A node came behind the gates nearest to it. What comes round gates further off goes round the nearest of a node
        on that way, so no others need be looked at.
        """
        by_gates: dict[frozenset[tuple[str, int]], set[str]] = {}
        for node, needs in self._nearest_gates().items():
            if len(needs) > 1:
                by_gates.setdefault(frozenset(needs.items()), set()).add(node)
        for gates, nodes in by_gates.items():
            if names := self._declared(self._begin_without(dict(gates)) & nodes):
                yield sorted(gate for gate, _ in gates), _BEHIND_ONE[min(needs for _, needs in gates)], names

    def _begin_without(self, gates: Mapping[str, int]) -> set[str]:
        """The nodes that began only where so much was said at one of these gates in the old version, and can begin in
        the new one where less is said at each.
        """
        if not self._has_new_ways:
            return set()
        stands = {*self._starts, *self._asked}
        before, then = ([one for one in ways if one.needs < gates.get(one.source, 9)] for ways in self._ways)
        free = self._from_here(before)
        bound = _reached(self._ways[0], {START}) - _reached(before, {START})
        ahead = self._from_here(self._ways[0]) - free
        return (self._from_here(then) - free) & (ahead if bound & stands else bound | ahead)

    def _nearest_gates(self) -> dict[str, dict[str, int]]:
        """Of each node the gates of the old version from which it can be reached past no other gate, and the least that
        must be said there.
        """
        if not self._has_new_ways:
            return {}
        gated = {node["name"] for node in self.old["nodes"] if node["gate"] or node["approve"]}
        said = {way for way in self._ways[0] if way.source in gated and way.needs}
        plain = [way for way in self._ways[0] if way not in said]
        found: dict[str, dict[str, int]] = {}
        for way in sorted(said, key=lambda one: -one.needs):
            for node in _reached(plain, [way.target]):
                found.setdefault(node, {})[way.source] = way.needs
        return found

    def _from_here(self, ways: Iterable[EdgeWay]) -> set[str]:
        return _reached(ways, self._starts, self._asked)

    def _declared(self, names: Collection[str]) -> list[str]:
        return sorted(node["name"] for node in self.old["nodes"] if node["name"] in names)

    def would_wait(self, join: str) -> list[str]:
        """Where what could still reach a node is alive in the new version, so that the node, begun by tokens, would not
        begin now.
        """
        at = self.at or Pending()
        into = [(way, edge) for way, edge in zip(self._ways[1], self.new["edges"], strict=True) if way.target == join]
        empty = {way.source for way, edge in into if edge not in at.edges and not way.is_send} - {START, join}
        if not any(edge in at.edges for _, edge in into):
            return []
        alive = {*self._gone.values(), *at.nodes, *at.asked} - {join}
        round_it = [way for way in self._ways[1] if join not in (way.source, way.target)]
        return sorted(one for one in alive if _reached(round_it, [one]) & empty)

    def needs(self, node: str) -> bool:
        """Whether something waits at the node, or was begun there."""
        at = self.at
        return at is None or node in {*at.nodes, *at.asked, *self._gone.values()}

    def asks(self, node: str) -> bool:
        """Whether people are asked there now."""
        return self.at is not None and node in self.at.asked

    def holds(self, edge: str) -> bool:
        """Whether a token is on the edge."""
        return self.at is None or edge in self.at.edges

    def will_take(self, edge: str) -> bool:
        """Whether a result that is kept goes on by the edge."""
        return self.at is not None and self.at.takes(edge)


def _reached(ways: Iterable[EdgeWay], starts: Iterable[str], behind: Iterable[str] = ()) -> set[str]:
    """The nodes that can begin: these, what they lead to, and what leads on from `behind`."""
    after: dict[str, list[str]] = {}
    for way in ways:
        after.setdefault(way.source, []).append(way.target)
    todo = [*starts, *(target for node in behind for target in after.get(node, ()))]
    found: set[str] = set()
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += after.get(node, ())
    return found
