"""Keys of runs: their rule, and the run that an id or a key names."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.core.run_key import RULE, is_like_uuid, is_run_key
from checkpoints.db import query_cache
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue


def checked_key(key: Any) -> str | None:
    """Return a key for a new run, or None for a run without a chosen key. Raises
    `InvalidValue`.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidValue("a key is a text", path="key")
    if not is_run_key(key):
        raise InvalidValue(f"a key is {RULE}", path="key", key=key)
    return key


def get(run_id: UUID | str) -> Run:
    """Return the run of that id or key. Raises `UnknownThing`."""
    text = str(run_id)
    rows: list[Run] = []
    if is_like_uuid(text):
        rows = query_cache.select(Run, _query_by_id, UUID(text))
    # The database refuses a text that it cannot store.
    elif is_storable(text):
        rows = query_cache.select(Run, _query_by_key, text)
    if not rows:
        raise unknown_thing("run", text)
    return rows[0]


def _query_by_id(run: UUID) -> "QuerySet[Run]":
    return Run.objects.filter(id=run).order_by()


def _query_by_key(key: str) -> "QuerySet[Run]":
    return Run.objects.filter(key=key).order_by()
