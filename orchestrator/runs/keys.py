"""Keys of runs: what may be one, and the run that an id or a key names."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.core.run_key import RULE, is_like_uuid, is_run_key
from checkpoints.db import query_cache
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue


def checked_key(key: Any) -> str | None:
    """A key for a new run; None where it is to have none of its own. Raises `InvalidValue`."""
    if key is not None and not isinstance(key, str):
        raise InvalidValue("a key is a text", path="key")
    if key is not None and not is_run_key(key):
        raise InvalidValue(f"a key is {RULE}", path="key", key=key)
    return key


def get(run_id: UUID | str) -> Run:
    """The run of that id or key. Raises `UnknownThing`."""
    text = str(run_id)
    if is_like_uuid(text):
        found = query_cache.select(Run, _of_id, UUID(text))
    else:
        found = query_cache.select(Run, _of_key, text) if is_storable(text) else []
    if not found:
        raise unknown_thing("run", text)
    return found[0]


def _of_id(run: UUID) -> "QuerySet[Run]":
    return Run.objects.filter(id=run).order_by()


def _of_key(key: str) -> "QuerySet[Run]":
    return Run.objects.filter(key=key).order_by()
