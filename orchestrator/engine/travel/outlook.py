"""The outlook from a frontier: the nodes that will run unless one fails, and those that
may. Pure.

The plan of a fork, a rewind or a replay is built on it. It promises too little rather
than too much: nodes that it says will run do, and no node runs that it does not name.
"""

from collections.abc import Collection, Iterable

from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import END, Edge
from orchestrator.engine.step.frontier import Frontier, visit_of
from orchestrator.engine.step.held_patch import PATCH


@frozen
class Outlook:
    """Nodes in declared order. `runs`: at least one task of each runs, unless a task
    fails or a limit ends the run; `may_run`: a router, a person, a fan-out or an error
    decides.
    """

    runs: tuple[str, ...]
    may_run: tuple[str, ...]


def foresee(
    compiled: Compiled,
    frontier: Frontier,
    *,
    stops: Collection[str] = (),
) -> Outlook:
    """Return the outlook from this frontier. `stops` are nodes that do not start
    without a yes.
    """
    reach = compiled.reach
    due = _due_nodes(compiled, frontier)
    waiting = [visit_of(key)[0] for key in frontier.waiting]
    ready = {task.node for task in frontier.ready_calls()}

    # Sets of nodes are bit masks. A waiting node has run already: only what comes after
    # it is still possible, but its people may hold up a join.
    possible = _reachable_from(compiled, due) | _behind(compiled, waiting)
    # A call that waits has been prepared only: its node runs if people let it.
    possible |= _mask(compiled, _calls_among(compiled, waiting))
    live = possible | _mask(compiled, waiting)
    certain = _certain_nodes(compiled, due, live, stops)
    certain |= ready.difference(stops)
    runs = [node for node in reach.bit if node in certain]
    may_run = [node for node in reach.names(possible) if node not in certain]
    return Outlook(tuple(runs), tuple(may_run))


def _calls_among(compiled: Compiled, nodes: Iterable[str]) -> list[str]:
    """Return the nodes among these that are called once people have approved it."""
    return [node for node in nodes if node != PATCH and compiled.nodes[node].calls]


def reached_behind(compiled: Compiled, nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes that these can lead to once they have run."""
    return frozenset(compiled.reach.names(_behind(compiled, nodes)))


def _due_nodes(compiled: Compiled, frontier: Frontier) -> list[str]:
    """Return the nodes at which tokens and sends stand."""
    targets = [compiled.edge[edge].target for edge in frontier.tokens]
    for target, _ in frontier.sends:
        targets.append(target)
    return [target for target in targets if target != END]


def _reachable_from(compiled: Compiled, nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= compiled.reach.forward[node]
    return mask


def _behind(compiled: Compiled, nodes: Collection[str]) -> int:
    """Return all that these nodes, which have run, can lead to."""
    targets: list[str] = []
    for edge in compiled.edges:
        if edge.source in nodes and edge.target != END:
            targets.append(edge.target)
    return _reachable_from(compiled, targets)


def _mask(compiled: Compiled, nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= compiled.reach.bit[node]
    return mask


def _certain_nodes(
    compiled: Compiled,
    due: Iterable[str],
    live: int,
    stops: Collection[str],
) -> set[str]:
    """Return the nodes that only a failure keeps from running. `live` are all nodes
    that can still run or wait.
    """
    waits_for_people = live & _mask(compiled, _nodes_with_people(compiled, stops))
    certain: set[str] = set()
    pending = list(due)
    while pending:
        node = pending.pop()
        # A stop waits for a yes that may never come.
        if node in certain or node in stops:
            continue
        # People may decide that it is not called.
        if compiled.nodes[node].calls:
            continue
        if _may_wait_for_ever(compiled, node, waits_for_people):
            continue
        certain.add(node)
        pending += [edge.target for edge in _sure_edges(compiled, node)]
    return certain


def _nodes_with_people(compiled: Compiled, stops: Collection[str]) -> list[str]:
    """Return the nodes that may wait for a person: gated ones and stops."""
    names: list[str] = []
    for node in compiled.nodes.values():
        if node.gated or node.name in stops:
            names.append(node.name)
    return names


def _may_wait_for_ever(
    compiled: Compiled,
    node: str,
    waits_for_people: int,
) -> bool:
    """Return whether a join may wait for a person who never answers."""
    if compiled.nodes[node].join != "all":
        return False
    into = compiled.reach.into[node]
    return any(sources & waits_for_people for sources in into.values())


def _sure_edges(compiled: Compiled, node: str) -> list[Edge]:
    """Return the edges that every finished task of a node takes: no router, goto,
    decision or error can choose another way.
    """
    declared = compiled.nodes[node]
    if declared.gated or declared.goto or compiled.has_error_edge(node):
        return []
    edges: list[Edge] = []
    for edge in compiled.edges:
        if edge.source != node or edge.target == END:
            continue
        if edge.kind == "edge" and not edge.when:
            edges.append(edge)
    return edges
