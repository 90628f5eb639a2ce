"""Runs whose payloads are in files, for tests."""

from pathlib import Path
from typing import Any

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator.engine import Graph
from tests.support.chain import join_in_a_row
from tests.support.small_graphs import graph


def chain(name: str, *nodes: str, **settings: Any) -> Graph:
    """Nodes one after another, each of which leaves a note."""
    flow = graph(name, **{"payloads": "cellar", **settings})
    for node in nodes:
        flow.node(node)(lambda state, ctx: {"notes": [ctx.node]})
    join_in_a_row(flow, *nodes)
    return flow


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def columns(run: Run) -> int:
    """Return how many payloads the rows of a run point to."""
    return sum(
        bool(row.change) + bool(row.snapshot)
        for row in Checkpoint.objects.filter(run=run)
    )


def notes(run: Run) -> list[str]:
    return timeline.state_at(Run.objects.get(id=run.id).head)["scratch"]["notes"]  # type: ignore[arg-type,no-any-return]
