"""What can still run from a frontier: the nodes that will, unless one fails, and those that may. Pure.

The plan of a fork, a rewind or a replay is made of it. It promises too little rather than too much: what it says will
run does, and nothing runs that it does not name.
"""

from collections.abc import Collection, Iterable

from orchestrator.engine.compile import Compiled
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.node import END, Edge


@frozen
class Outlook:
    """Nodes as declared. `runs`: at least one task of each runs, unless a task fails or a limit ends the run;
    `may_run`: a router, a person, a fan-out or an error decides.
    """

    runs: tuple[str, ...]
    may_run: tuple[str, ...]


def foresee(compiled: Compiled, frontier: Frontier, *, stops: Collection[str] = ()) -> Outlook:
    """The outlook from this frontier. `stops` are nodes before which somebody is asked first."""
    reach = compiled.reach
    begun = [node for node in _begun(compiled, frontier) if node != END]
    waiting = [visit_of(key)[0] for key in frontier.waiting]
    possible = _reached(compiled, begun) | _behind(compiled, waiting)
    certain = _certain(compiled, begun, possible | _mask(compiled, waiting), stops)
    return Outlook(
        tuple(node for node in reach.bit if node in certain),
        tuple(node for node in reach.names(possible) if node not in certain),
    )


def reached_behind(compiled: Compiled, nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes that these, once they have run, can lead to."""
    return frozenset(compiled.reach.names(_behind(compiled, nodes)))


def _begun(compiled: Compiled, frontier: Frontier) -> list[str]:
    """Where tokens and sends stand."""
    return [*[compiled.edge[id].target for id in frontier.tokens], *[target for target, _ in frontier.sends]]


def _reached(compiled: Compiled, nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= compiled.reach.forward[node]
    return mask


def _behind(compiled: Compiled, nodes: Collection[str]) -> int:
    """What these nodes, which have run, can lead to."""
    return _reached(compiled, [e.target for e in compiled.edges if e.source in nodes and e.target != END])


def _mask(compiled: Compiled, nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= compiled.reach.bit[node]
    return mask


def _certain(compiled: Compiled, begun: Iterable[str], live: int, stops: Collection[str]) -> set[str]:
    """The nodes that nothing but a failure keeps from running."""
    people = _mask(compiled, [node.name for node in compiled.nodes.values() if node.gated or node.name in stops]) & live
    found: set[str] = set()
    todo = list(begun)
    while todo:
        node = todo.pop()
        if node in found or node in stops or _may_wait(compiled, node, people):
            continue
        found.add(node)
        todo += [edge.target for edge in _sure_edges(compiled, node)]
    return found


def _may_wait(compiled: Compiled, node: str, people: int) -> bool:
    """Whether a join may wait for somebody who never answers."""
    joins = compiled.nodes[node].join == "all"
    return joins and any(sources & people for sources in compiled.reach.into[node].values())


def _sure_edges(compiled: Compiled, node: str) -> list[Edge]:
    """The edges that each finished task of a node takes: no router, goto, decision or error takes another way."""
    declared = compiled.nodes[node]
    if declared.gated or declared.goto or compiled.has_error_edge(node):
        return []
    return [e for e in compiled.edges if e.source == node and e.kind == "edge" and not e.when and e.target != END]
