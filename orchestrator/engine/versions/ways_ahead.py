"""The ways that lie ahead of a run: which of its nodes can still begin, by which edges,
and which of them without the gates that they came after. Pure.

`differences` calls this for a run that stands at a point, over the structures of two
versions.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import JOURNALED
from orchestrator.engine.graphs.node import START
from orchestrator.engine.graphs.standing_policy import signs_by_itself
from orchestrator.engine.versions.pending_parts import Pending

_EDGE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(=>|~>|>)([A-Za-z_][A-Za-z0-9_.-]*)")
_NEEDS_ANYTHING = 1
_NEEDS_CONSENT = 2
_NEEDS = {"!error": 0, "!rejected": _NEEDS_ANYTHING, "!approved": 3}
"""The least that people must have decided before an edge of a gated node is taken:
nothing (0), anything (1), yes to a part (2, as for every edge that names no outcome),
yes to all (3).
"""
_NO_EDGE_NEEDS = 9
_BEHIND = {1: "it", 2: "its approval", 3: "its approval in full"}
_BEHIND_ONE = {
    1: "one of them",
    2: "the approval of one of them",
    3: "the approval in full of one of them",
}


@frozen
class EdgeWay:
    """An edge: its source and target, and what people must have decided if it leaves a
    gated node.
    """

    source: str
    target: str
    needs: int
    is_send: bool = False


def read_edge(edge: str) -> EdgeWay:
    """Return the way that an edge's id stands for; one from nowhere to nowhere if the
    id cannot be read.
    """
    # Only at its beginning, because a label may itself look like an edge.
    match = _EDGE.match(edge)
    if match is None:
        return EdgeWay("", "", _NEEDS_CONSENT)
    outcome = edge[match.end() :]
    return EdgeWay(
        source=match[1],
        target=match[3],
        needs=_NEEDS.get(outcome, _NEEDS_CONSENT),
        is_send=match[2] == "~>",
    )


@dataclass
class WaysAhead:
    """The nodes that can still begin, and the edges that hold something, for a run that
    stands at this point. Without a record of it (None) each part may be needed.
    `silent` are the nodes whose open requests their deadline approves, None without a
    record of them.
    """

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    at: Pending | None
    silent: Collection[str] | None = None

    def __post_init__(self) -> None:
        at = self.at or Pending()
        self._token_targets = {read_edge(edge).target for edge in at.edges}
        # Some items of a node may wait for people while others have yet to begin.
        starts = {*self._token_targets, *at.nodes}
        # Without a record of its place, the run may stand anywhere after START.
        self._starts = starts if self.at else {START}
        self._asked = set(at.awaiting_people)
        self._old_ways = [read_edge(edge) for edge in self.old["edges"]]
        self._new_ways = [read_edge(edge) for edge in self.new["edges"]]
        self._has_new_ways = not set(self._new_ways) <= set(self._old_ways)
        self._began = _reached(self._old_ways, starts, self._asked)
        self._begins = _reached(self._new_ways, starts, self._asked)

    def begins(
        self,
        node: str,
    ) -> bool:
        """Return whether the node can begin in the new version."""
        return self.at is None or node in self._begins

    def began(
        self,
        node: str,
    ) -> bool:
        """Return whether the node could have begun in the old version."""
        return self.at is None or node in self._began

    def round_gate(
        self,
        gate: str,
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield the nodes that began only after this gate in the old version, and can
        begin without it in the new one, grouped by the decisions that they needed. If
        the run stands after the gate, the gate itself was passed.
        """
        # A node is reported once, with the weakest decision that it needed.
        reported: set[str] = set()
        for needs, behind in _BEHIND.items():
            free = self._begin_without({gate: needs}) - reported
            reported |= free
            names = self._declared(free)
            if names:
                yield behind, names

    def round_gates(self) -> Iterator[tuple[list[str], str, list[str]]]:
        """Yield the same for nodes that began after one or another of several gates:
        the gates, what was decided there, the nodes.

        A node belongs to the gates nearest to it. A way round more distant gates also
        goes round the nearest gate of some node on that way, so no other combinations
        need to be looked at.
        """
        nodes_by_gates: dict[frozenset[tuple[str, int]], set[str]] = {}
        for node, needs in self._nearest_gates().items():
            # A node after a single gate is found by `round_gate`.
            if len(needs) > 1:
                gates = frozenset(needs.items())
                nodes_by_gates.setdefault(gates, set()).add(node)
        for gates, nodes in nodes_by_gates.items():
            names = self._declared(self._begin_without(dict(gates)) & nodes)
            if names:
                least = min(needs for _, needs in gates)
                yield sorted(gate for gate, _ in gates), _BEHIND_ONE[least], names

    def silence_approves(
        self,
        gate: str,
    ) -> bool:
        """Return whether a deadline approves what people are asked at this gate now. A
        request keeps the policy under which it was opened, perhaps by a version before
        the old one.
        """
        if not self.asks(gate):
            return False
        if self.silent is not None:
            return gate in self.silent
        for node in self.old["nodes"]:
            if node["name"] == gate and node["gate"]:
                return bool(node["gate"].get("on_deadline") == "approve")
        return False

    def depends_on_silence(self) -> bool:
        """Return whether something could act if a deadline approved what people are
        asked now.
        """
        names = {node["name"] for node in self.new["nodes"]}
        return any(self.acting_by_silence(name) for name in self._asked & names)

    def acting_by_silence(
        self,
        gate: str,
    ) -> list[str]:
        """Return, sorted, the nodes of the new version that could act if the deadline of
        this gate approved, before people decide at any other gate.
        """
        nodes = {node["name"]: node for node in self.new["nodes"]}
        ways: list[EdgeWay] = []
        for way in self._new_ways:
            # An unknown node, START among them, has no gate.
            node = nodes.get(way.source, {})
            if _is_open_without_people(way, node):
                ways.append(way)
        starts = self._starts_after(gate, is_call=nodes[gate]["approve"] == "call")
        acting: list[str] = []
        for name in sorted(_reached(ways, starts) & nodes.keys()):
            node = nodes[name]
            if node["effect"] in JOURNALED and not _surely_asks(node):
                acting.append(name)
        return acting

    def _starts_after(
        self,
        gate: str,
        *,
        is_call: bool,
    ) -> list[str]:
        """Return the nodes to which an approval at a gate leads in the new version."""
        starts: list[str] = []
        for way in self._new_ways:
            # A call runs after its approval, and may fail then.
            is_taken = way.needs or is_call
            if way.source == gate and way.needs != _NEEDS_ANYTHING and is_taken:
                starts.append(way.target)
        return starts

    def _begin_without(
        self,
        gates: Mapping[str, int],
    ) -> set[str]:
        """Return the nodes that began in the old version only if as much was decided at
        one of these gates, and can begin in the new one if less is decided at each.
        """
        # Nothing leads round a gate that did not before.
        if not self._has_new_ways:
            return set()
        old_ways_round = _ways_round(self._old_ways, gates)
        new_ways_round = _ways_round(self._new_ways, gates)
        # What could begin without the gates before is no loss.
        free_before = self._from_here(old_ways_round)
        free_now = self._from_here(new_ways_round) - free_before
        ahead = self._from_here(self._old_ways) - free_before

        # The nodes after the gates, for a run at its very start. A run that stands at
        # one of them has passed the gates, so that only what is ahead of it counts.
        all_behind = _reached(self._old_ways, {START})
        all_behind -= _reached(old_ways_round, {START})
        if all_behind & {*self._starts, *self._asked}:
            return free_now & ahead
        return free_now & (all_behind | ahead)

    def _nearest_gates(self) -> dict[str, dict[str, int]]:
        """Return, for each node, the gates of the old version from which it can be
        reached past no other gate, and the least that must be decided there.
        """
        if not self._has_new_ways:
            return {}
        gated: set[str] = set()
        for node in self.old["nodes"]:
            if node["gate"] or node["approve"]:
                gated.add(node["name"])
        decided_ways: set[EdgeWay] = set()
        plain_ways: list[EdgeWay] = []
        for way in self._old_ways:
            # An edge that needs no decision, as that of an error, leads past its gate.
            if way.source in gated and way.needs:
                decided_ways.add(way)
            else:
                plain_ways.append(way)

        # The way that needs least comes last, so that it is the one that stays.
        nearest: dict[str, dict[str, int]] = {}
        for way in sorted(
            decided_ways,
            key=lambda way: -way.needs,
        ):
            for name in _reached(plain_ways, [way.target]):
                nearest.setdefault(name, {})[way.source] = way.needs
        return nearest

    def _from_here(
        self,
        ways: Iterable[EdgeWay],
    ) -> set[str]:
        return _reached(ways, self._starts, self._asked)

    def _declared(
        self,
        names: Collection[str],
    ) -> list[str]:
        """Return those of the names that are nodes of the old version, sorted."""
        return sorted({node["name"] for node in self.old["nodes"]} & set(names))

    def would_wait(
        self,
        join: str,
    ) -> list[str]:
        """Return the nodes with live work that could still reach a join in the new
        version. The join, which its tokens let begin, would wait for them now.
        """
        at = self.at or Pending()
        # By now the node holds tokens on some incoming edges, and waits for the others.
        holds_token = False
        empty_sources: set[str] = set()
        for way, edge in zip(
            self._new_ways,
            self.new["edges"],
            strict=True,
        ):
            if way.target != join:
                continue
            if edge in at.edges:
                holds_token = True
            elif not way.is_send:
                empty_sources.add(way.source)
        if not holds_token:
            return []
        empty_sources -= {START, join}

        # What is alive counts if it can reach an empty edge without the node itself.
        alive = {*self._token_targets, *at.nodes, *at.awaiting_people} - {join}
        ways_round = _ways_past(self._new_ways, join)
        blockers: list[str] = []
        for node in sorted(alive):
            if _reached(ways_round, [node]) & empty_sources:
                blockers.append(node)
        return blockers

    def needs(
        self,
        node: str,
    ) -> bool:
        """Return whether something waits at the node, or was begun there."""
        at = self.at
        if at is None:
            return True
        return (
            node in at.nodes
            or node in at.awaiting_people
            or node in self._token_targets
        )

    def asks(
        self,
        node: str,
    ) -> bool:
        """Return whether people are asked there now."""
        return self.at is not None and node in self.at.awaiting_people

    def holds(
        self,
        edge: str,
    ) -> bool:
        """Return whether a token is on the edge."""
        return self.at is None or edge in self.at.edges

    def will_take(
        self,
        edge: str,
    ) -> bool:
        """Return whether a stored result goes on by the edge."""
        return self.at is not None and self.at.takes(edge)


def _surely_asks(node: Mapping[str, Any]) -> bool:
    """Return whether nothing of a node passes without people. A gate with its own rule
    may answer that nobody needs to be asked.
    """
    gate = node.get("gate") or {}
    return bool(gate) and gate["needs_approval"] is None and not signs_by_itself(gate)


def _is_open_without_people(way: EdgeWay, node: Mapping[str, Any]) -> bool:
    """Return whether a run can leave this node by this way though nobody decided."""
    if _surely_asks(node):
        # It can fail before anybody is asked.
        return not way.needs
    return way.needs != _NEEDS_ANYTHING


def _ways_round(
    ways: Iterable[EdgeWay],
    gates: Mapping[str, int],
) -> list[EdgeWay]:
    """Return the ways that are open if less than this is decided at each gate."""
    open_ways: list[EdgeWay] = []
    for way in ways:
        if way.needs < gates.get(way.source, _NO_EDGE_NEEDS):
            open_ways.append(way)
    return open_ways


def _ways_past(
    ways: Iterable[EdgeWay],
    node: str,
) -> list[EdgeWay]:
    """Return the ways that do not touch the node."""
    return [way for way in ways if node not in (way.source, way.target)]


def _reached(
    ways: Iterable[EdgeWay],
    starts: Iterable[str],
    behind: Iterable[str] = (),
) -> set[str]:
    """Return the nodes that can begin: `starts`, what they lead to, and what leads on
    from `behind`.
    """
    targets: dict[str, list[str]] = {}
    for way in ways:
        targets.setdefault(way.source, []).append(way.target)
    pending = list(starts)
    for node in behind:
        pending += targets.get(node, ())
    reached: set[str] = set()
    while pending:
        node = pending.pop()
        # Otherwise a loop would be followed forever.
        if node not in reached:
            reached.add(node)
            pending += targets.get(node, ())
    return reached
