"""Runs of a state that is far larger than its changes, for tests."""

from typing import Any

from checkpoints.models import Checkpoint, Run
from orchestrator.engine import Graph
from tests.support.chain import join_in_a_row
from tests.support.payload_backends import Full
from tests.support.small_graphs import graph

LARGE = "w" * 20_000


def large(name: str, nodes: str, *, full: str = "", **settings: Any) -> Graph:
    """A chain whose first node writes a long letter and whose others a note each; the
    disk is full for those of `full`.
    """
    flow = graph(name, **settings)

    def run(state: Any, ctx: Any) -> dict[str, Any]:
        Full.left = 0 if ctx.node in full else None
        return {"letter": LARGE} if ctx.node == nodes[0] else {"notes": [ctx.node]}

    for node in nodes:
        flow.node(node)(run)
    join_in_a_row(flow, *nodes)
    return flow


def last(run: Run) -> Checkpoint:
    return Checkpoint.objects.get(id=Run.objects.get(id=run.id).head)
