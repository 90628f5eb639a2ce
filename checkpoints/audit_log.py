"""The audit log of the installation: refusals and other acts that belong to no run's own log. Lines are only added."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows


def record(kind: str, *, actor: Any, run: UUID | None = None, request: UUID | None = None, **facts: Any) -> AuditLine:
    """Add a line in a transaction of its own. `actor` None means the system.

    A refusal must be recorded after the block that it rolls back has been left, else the line goes with it. `facts` are
    ids and names as JSON, never a value that a person decides on.
    """
    name = actor.get_username() if actor is not None else ""
    row = AuditLine(at=timezone.now(), actor=actor, actor_name=name, kind=kind, run=run, request=request, facts=facts)
    sealed_rows.seal(row, sealed_rows.PLAIN)
    with transaction.atomic():
        row.save(force_insert=True)
    return row
