"""The audit log of the installation: people's acts and refused attempts, and changes of
the installation itself.

Lines are only added, and outlive the runs that they are about. A line says who did what
to which run, never a value: that is in the row of a decision, or in the run's log for
another act.
"""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from checkpoints.db import query_cache
from checkpoints.db.rows import mark_stored, new_row
from checkpoints.db.statements import insert_row
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows


def record(
    kind: str,
    *,
    actor: Any,
    run: UUID | None = None,
    graph: str = "",
    request: UUID | None = None,
    **facts: Any,
) -> AuditLine:
    """Add a line, in the caller's transaction if there is one. `actor` None means the
    system. The graph is looked up where a run is given without it.

    A refusal must be recorded after the block that it rolls back has been left, or the
    line would be rolled back too; an act in the transaction that does it. `facts` are
    ids and names as JSON, never a value that a person decides on.
    """
    # Lists of one graph find the line by this column, even when the run is gone.
    if not graph and run is not None:
        graph = _graph_of(run)
    row = new_row(
        AuditLine,
        at=timezone.now(),
        actor_id=actor.pk if actor is not None else None,
        # An account may be renamed later; the line keeps the name of then.
        actor_name=actor.get_username() if actor is not None else "",
        kind=kind,
        graph=graph,
        run=run,
        request=request,
        facts=facts,
    )
    sealed_rows.seal(row, sealed_rows.PLAIN)
    insert_row(row)
    mark_stored(row)
    return row


def record_act(kind: str, run: Any, *, actor: Any, seq: int, **facts: Any) -> AuditLine:
    """Add the line of an act on a locked run (its row, or the lease on it), in the
    act's own transaction: `seq` is the number of the event that records it in the run's
    log, where its reason is too.
    """
    # Decisions outlive their run's row, and without knowing how they are protected
    # nobody could decrypt or verify them.
    if run.encrypted:
        facts["hash_key"] = run.hash_key
    return record(kind, actor=actor, run=run.id, graph=run.graph, seq=seq, **facts)


def _graph_of(run: UUID) -> str:
    # Whoever was refused may have named a run by its text.
    records = query_cache.select_values(_query_of_graph, UUID(str(run)))
    return str(records[0][0]) if records else ""


def _query_of_graph(run: UUID) -> "QuerySet[Run, tuple[str]]":
    return Run.objects.filter(id=run).order_by().values_list("graph")
