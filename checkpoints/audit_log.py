"""The audit log of the installation: what people did and were refused, and what was done to the installation itself.

Lines are only added, and outlive the runs that they are about. A line says who did what to which run, never a value: of
a decision the row itself is kept, of another act the line of the run's log.
"""

from typing import Any
from uuid import UUID

from django.utils import timezone

from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows


def record(
    kind: str, *, actor: Any, run: UUID | None = None, graph: str = "", request: UUID | None = None, **facts: Any
) -> AuditLine:
    """Add a line, in the caller's transaction if there is one. `actor` None means the system. The graph is looked up
    where a run is given without it.

    A refusal must be recorded after the block that it rolls back has been left, else the line goes with it; an act in
    the transaction that does it. `facts` are ids and names as JSON, never a value that a person decides on.
    """
    name = actor.get_username() if actor is not None else ""
    graph = graph or (_graph_of(run) if run is not None else "")
    row = AuditLine(at=timezone.now(), actor=actor, actor_name=name, kind=kind, graph=graph, run=run, facts=facts)
    row.request = request
    sealed_rows.seal(row, sealed_rows.PLAIN)
    row.save(force_insert=True)
    return row


def record_act(kind: str, run: Any, *, actor: Any, seq: int, **facts: Any) -> AuditLine:
    """Add the line of an act on a locked run (its row, or the lease on it), in the act's own transaction: `seq` is the
    number of the line of the run's log that tells of it, where its reason stands too.
    """
    # Decisions outlive their run's row, and can be opened and proven only by who knows how they are protected.
    facts |= {"hash_key": run.hash_key} if run.encrypted else {}
    return record(kind, actor=actor, run=run.id, graph=run.graph, seq=seq, **facts)


def _graph_of(run: UUID) -> str:
    return Run.objects.filter(id=run).values_list("graph", flat=True).first() or ""
