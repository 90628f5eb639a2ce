"""Keys and ids of removed runs: no second journey begins under one."""

from uuid import UUID

from checkpoints.models import AuditLine, RemovedKey
from orchestrator.engine.errors import KeyConflict


def require_never_removed(key: str | None) -> None:
    """Raise `KeyConflict` if a run of this key (None: it has none) was removed. Call it
    after the insert of the run, which waits for a removal that is under way. One query,
    none without a key.
    """
    if not key:
        return
    if RemovedKey.objects.filter(key=key).exists():
        message = (
            f"key {key} belongs to a run that was removed by retention, "
            "and begins no second one"
        )
        raise KeyConflict(message, key=key)


def was_removed(run_id: UUID) -> bool:
    """Return whether retention removed the run of this id. One query."""
    # By the audit log, for a run without a chosen key leaves no `RemovedKey`.
    return AuditLine.objects.filter(run=run_id, kind="run_removed").exists()
