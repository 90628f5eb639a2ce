"""The effect of a write once it is approved: the heaviest effect among the nodes after
its gate that see its channel.

Read from the graph, as far as the next gate. A node that names no channels in `reads`
sees all of them, so it counts for each write: a mark may announce more than happens,
never less.
"""

from dataclasses import dataclass, replace

from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.gates.nodes_behind import nodes_behind
from orchestrator.engine.graphs.call import is_call
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.held_patch import PATCH

WEIGHT = {"write": 1, "external": 2}


@dataclass(frozen=True, slots=True)
class WriteEffect:
    """The mark of a write, and the node that acts on it; empty if none does. `named` is
    the effect that the write itself names, if it does.
    """

    effect: str = "write"
    node: str = ""
    named: str = ""

    @property
    def label(self) -> str:
        return self.effect.capitalize()


def effect_of_write(
    compiled: Compiled | None,
    node: str,
    channel: str,
    ahead: Ahead = NOTHING_AHEAD,
) -> WriteEffect:
    """Return the effect of a write into this channel that this node, or a patch,
    proposes. A plain write if the graph is not here.
    """
    heaviest = WriteEffect()
    if compiled is None:
        return heaviest
    heaviest_weight = 0
    # A call is the effect itself: nothing is signed before it but its arguments.
    if is_call(channel) and node in compiled.nodes:
        called = compiled.nodes[node]
        heaviest_weight = WEIGHT.get(called.effect, 0)
        heaviest = WriteEffect(called.effect if heaviest_weight else "write", node)
    # A patch is no node; the run goes on from its waiting tokens.
    pending = ahead.pending if node == PATCH else ()
    for behind in nodes_behind(compiled, node, "approved", pending):
        sees_channel = behind.reads is None or channel in behind.reads
        weight = WEIGHT.get(behind.effect, 0)
        if sees_channel and weight > heaviest_weight:
            heaviest = WriteEffect(behind.effect, behind.name)
            heaviest_weight = weight
    return heaviest


def with_named(effect: WriteEffect, named: str) -> WriteEffect:
    """Return the effect of a write that names this effect itself, or none: the heavier
    of the two, since whoever acts on it may be no node of the graph.
    """
    if heavier(effect.effect, named) == effect.effect:
        return replace(effect, named=named)
    return WriteEffect(named, named=named)


def heavier(effect: str, named: str) -> str:
    """Return the heavier of the effect that a graph has and one that a write names."""
    is_heavier = WEIGHT.get(named, 0) > WEIGHT.get(effect, 0)
    return named if is_heavier else effect
