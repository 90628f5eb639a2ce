"""The keys of runs that were removed: nobody begins a second journey under one."""

from checkpoints.models import RemovedKey
from orchestrator.engine.errors import KeyConflict


def require_never_removed(key: str | None) -> None:
    """Raise `KeyConflict` where a run of this key, None for none, was removed. To be asked behind the insert of the
    run, which waits for a removal that is under way. One query, none without a key.
    """
    if key and RemovedKey.objects.filter(key=key).exists():
        message = f"key {key} belongs to a run that was removed by retention, and begins no second one"
        raise KeyConflict(message, key=key)
