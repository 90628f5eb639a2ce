"""Keys of runs: what may be one, and the run that an id or a key names."""

import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.core.ids import is_storable, unknown_thing
from checkpoints.db import query_cache
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue

LONGEST_KEY = 200
_KEY = re.compile(r"[^/:\x00\ud800-\udfff]{1,200}")
_LIKE_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def checked_key(key: Any) -> str | None:
    """A key for a new run; None where it is to have none of its own. Raises `InvalidValue`."""
    if key is not None and not isinstance(key, str):
        raise InvalidValue("a key is a text", path="key")
    if key is not None and (not _KEY.fullmatch(key) or _LIKE_UUID.fullmatch(key)):
        message = "a key is 1 to 200 characters without / and :, and not shaped like a UUID"
        raise InvalidValue(message, path="key", key=key)
    return key


def get(run_id: UUID | str) -> Run:
    """The run of that id or key. Raises `UnknownThing`."""
    text = str(run_id)
    like_uuid = _LIKE_UUID.fullmatch(text)
    if like_uuid:
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
