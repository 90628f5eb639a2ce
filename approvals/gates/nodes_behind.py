"""The nodes that run once a gate is passed, as far as the next gate: read from the
edges of the graph. Pure.
"""

from collections.abc import Callable, Iterable, Iterator

from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import END, Edge, Node


def takes(edge: Edge, outcome: str) -> bool:
    """Return whether an edge may be taken after a gate with this outcome: an edge
    without a label is for approved and partial.
    """
    if edge.kind == "error":
        return False
    if edge.when:
        return edge.when == outcome
    return outcome in ("approved", "partial")


def edges_from(compiled: Compiled, node: str) -> list[Edge]:
    """Return the edges that leave a node, except those for errors."""
    return [
        edge for edge in compiled.edges if edge.source == node and edge.kind != "error"
    ]


def nodes_behind(
    compiled: Compiled, node: str, outcome: str, pending: Iterable[Edge] = ()
) -> Iterator[Node]:
    """Yield the nodes that may run once the gate of a node has this outcome, before
    another gate, in the order of the edges. `pending` are further edges on which the
    run goes on: a patch is no node.
    """
    first = [
        edge for edge in compiled.edges if edge.source == node and takes(edge, outcome)
    ]
    yield from _walk(compiled, [*first, *pending], edges_from)


def nodes_reached(compiled: Compiled, node: str) -> Iterator[Node]:
    """Yield the nodes that may run after the gate of a node and before another gate,
    whatever its outcome and whatever fails there.
    """
    yield from _walk(compiled, _all_edges_from(compiled, node), _all_edges_from)


def _all_edges_from(compiled: Compiled, node: str) -> list[Edge]:
    return [edge for edge in compiled.edges if edge.source == node]


def _walk(
    compiled: Compiled,
    first: Iterable[Edge],
    onward: Callable[[Compiled, str], list[Edge]],
) -> Iterator[Node]:
    queue = list(first)
    seen: set[str] = set()
    while queue:
        name = queue.pop(0).target
        if name in seen or name == END:
            continue
        seen.add(name)
        behind = compiled.nodes[name]
        # After another gate, people decide again.
        if behind.gated:
            continue
        yield behind
        queue += onward(compiled, name)
