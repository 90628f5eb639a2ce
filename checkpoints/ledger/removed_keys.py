"""Keys and ids of removed runs: no second journey begins under one."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.db import query_cache
from checkpoints.models import AuditLine, RemovedKey
from orchestrator.engine.errors import KeyConflict


def require_never_removed(key: str | None) -> None:
    """Raise `KeyConflict` if a run of this key (None: it has none) was removed. Call it
    after the insert of the run, which waits for a removal that is under way. One query,
    none without a key.
    """
    if not key:
        return
    if query_cache.exists(_query_of_key, key):
        message = (
            f"key {key} belongs to a run that was removed by retention, "
            "and begins no second one"
        )
        raise KeyConflict(message, key=key)


def _query_of_key(key: str) -> "QuerySet[RemovedKey, Any]":
    return RemovedKey.objects.filter(key=key).values_list("pk")


def was_removed(run_id: UUID) -> bool:
    """Return whether retention removed the run of this id. One query."""
    # By the audit log, for a run without a chosen key leaves no `RemovedKey`.
    return AuditLine.objects.filter(run=run_id, kind="run_removed").exists()
