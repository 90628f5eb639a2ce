"""Small graphs of one test each, and a worker that the test drives by hand."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import BaseModel

from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.queue.leases import Lease
from orchestrator import runs
from orchestrator.engine import END, START, Append, Graph, registry
from orchestrator.execution import loop


class Order(BaseModel):
    folder: str = ""


class Notes(BaseModel):
    notes: Annotated[list[str], Append] = []
    letter: str = ""
    total: int = 0


def graph(name: str, **settings: Any) -> Graph:
    """An empty graph; `registered` makes it startable."""
    return Graph(name, input=Order, state=Notes, **settings)


def registered(flow: Graph) -> Graph:
    registry.replace(flow)
    return flow


def single_node(
    name: str, work: Callable[[Any, Any], Any] = lambda state, ctx: None
) -> Graph:
    """A graph whose only node, work, calls this function."""
    flow = graph(name)
    flow.node("work")(work)
    flow.edge(START, "work")
    flow.edge("work", END)
    return flow


def started(flow: Graph) -> Run:
    """A run of the graph that nobody has worked on yet."""
    registered(flow)
    return runs.start(flow.name, {})


def advanced(flow: Graph) -> Run:
    """A run of the graph, worked on until it rests."""
    return runs.advance(started(flow).id)


def held(run: Run) -> Lease:
    """The run, claimed and begun."""
    claim = leases.claim_one(run.id)
    assert claim is not None
    lease = leases.begin_lease(claim.id, claim.epoch)
    assert lease is not None
    return lease


def expire_lease(run: Run) -> None:
    """Let the lease of a run be over."""
    over = timezone.now() - timedelta(seconds=1)
    Run.objects.filter(id=run.id).update(lease_until=over)


def slice_of(run: Run, *, draining: Callable[[], bool] = loop.never) -> Run:
    """One slice of the run, by a worker that may be asked to drain."""
    claim = leases.claim_one(run.id)
    assert claim is not None
    loop.run_slice(claim.id, claim.epoch, draining=draining)
    run.refresh_from_db()
    return run
