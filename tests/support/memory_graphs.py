"""Small graphs that remember, for tests on the database."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from checkpoints.models import MemoryLanding, MemoryRecord, MemoryTrace, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from tests.support.small_graphs import graph, registered

GATE = Gate(reviewers=["group:claims"])
Node = Callable[[Any, Any], Any]


def chain(
    name: str, *nodes: Node, options: Sequence[dict[str, Any]] = (), **settings: Any
) -> Graph:
    """A registered graph of these nodes, one after another, each under its own name."""
    flow = graph(name, **settings)
    names = [START, *(node.__name__ for node in nodes), END]
    for n, node in enumerate(nodes):
        flow.node(**(options[n] if n < len(options) else {}))(node)
    for source, target in zip(names, names[1:], strict=False):
        flow.edge(source, target)
    return registered(flow)


def side_by_side(
    name: str, *nodes: Node, options: Sequence[dict[str, Any]] = (), **settings: Any
) -> Graph:
    """A registered graph of these nodes, all in one superstep."""
    flow = graph(name, **settings)
    for n, node in enumerate(nodes):
        flow.node(**(options[n] if n < len(options) else {}))(node)
        flow.edge(START, node.__name__)
        flow.edge(node.__name__, END)
    return registered(flow)


def gone(flow: Graph) -> Run:
    """A run of the graph, worked on until it rests."""
    return runs.advance(runs.start(flow.name, {}).id)


def remember(key: str, content: Any, namespace: str = "facts", **options: Any) -> Run:
    """Another run that remembers this, from start to end."""

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put(key, content, namespace, **options)

    return gone(chain("remember", put))


def forget(key: str, namespace: str = "facts") -> Run:
    """Another run that forgets it."""

    def delete(state: Any, ctx: Any) -> None:
        ctx.memory.delete(key, namespace)

    return gone(chain("forget", delete))


def let_memory_age(*, days: float) -> None:
    """Date everything that is remembered back by this many days."""
    at = timezone.now() - timedelta(days=days)
    for row in MemoryTrace.objects.all():
        row.save(
            update_fields=sealed_rows.seal_again(row, Protection(row.encrypted), at=at)
        )


def memory() -> dict[str, Any]:
    """Return what is remembered: {namespace/key: content}."""
    rows = MemoryTrace.objects.filter(deleted=False).order_by("namespace", "key")
    return {f"{row.namespace}/{row.key}": read_value(row, "content") for row in rows}


def versions() -> dict[str, int]:
    """The versions of all keys, forgotten ones too."""
    return {
        f"{row.namespace}/{row.key}": row.version for row in MemoryTrace.objects.all()
    }


def landed(run: Run) -> list[tuple[str, int, str, int]]:
    """Return what landed of a run, in order: task, n, key, version."""
    rows = MemoryLanding.objects.filter(run=run).order_by("id")
    return [(row.task, row.n, row.key, row.version) for row in rows]


def lose_the_lease(ctx: Any) -> None:
    """Take the lease from this worker, as if it had died: what it brings is refused,
    and another takes the run over from its last commit.
    """
    Run.objects.filter(id=ctx.run_id).update(
        epoch=F("epoch") + 1, lease_until="2000-01-01T00:00Z"
    )


def records(run: Run) -> list[tuple[str, str, Any, bool]]:
    """Return what is kept of what a run read: kind, mode, the call, whether it was read
    anew.
    """
    rows = MemoryRecord.objects.filter(run=run).order_by("id")
    return [
        (row.kind, row.mode, read_value(row, "asked"), row.unrecorded) for row in rows
    ]
