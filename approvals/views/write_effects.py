"""What a write sets off once it is approved: the heaviest effect among the nodes behind its gate that see its channel.

Read off the graph, as far as the next gate. A node that names no channels in `reads` sees all of them, so it counts for
each write: a mark may say more than happens, never less.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.views.consequences import takes
from orchestrator.engine.compile import Compiled
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.node import END, Node

WEIGHT = {"write": 1, "external": 2}


@dataclass(frozen=True, slots=True)
class WriteEffect:
    """The mark of a write, and the node that acts on it; empty where none does."""

    effect: str = "write"
    node: str = ""

    @property
    def label(self) -> str:
        return self.effect.capitalize()


def effect_of_write(compiled: Compiled | None, node: str, channel: str, ahead: Ahead = NOTHING_AHEAD) -> WriteEffect:
    """The effect of a write that this node, or a patch, proposes into this channel. A plain write where the graph is
    not here.
    """
    found = WriteEffect()
    weight = 0
    for one in _behind(compiled, node, ahead) if compiled else ():
        sees = one.reads is None or channel in one.reads
        if sees and WEIGHT.get(one.effect, 0) > weight:
            found, weight = WriteEffect(one.effect, one.name), WEIGHT[one.effect]
    return found


def _behind(compiled: Compiled, node: str, ahead: Ahead) -> Iterator[Node]:
    """The nodes that may run once the gate of this one is passed, before another gate, in the order of the edges."""
    queue = [edge for edge in compiled.edges if edge.source == node and takes(edge, "approved")]
    queue += ahead.pending if node == PATCH else ()
    seen: set[str] = set()
    while queue:
        name = queue.pop(0).target
        if name in seen or name == END:
            continue
        seen.add(name)
        one = compiled.nodes[name]
        if not one.gated:
            yield one
            queue.extend(e for e in compiled.edges if e.source == name and e.kind != "error")
