"""Rows as lines of a bundle say them: a JSON object of columns by name.

Payloads of a plain run are texts, exactly the canonical bytes; those of an encrypted run are its encrypted bytes in
base64. Times are ISO 8601 in UTC, ids are texts, people are their user names.
"""

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Field, Model

from checkpoints import payloads
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import CountersignError

RUN_COLUMNS = (
    "id", "key", "graph", "version", "fingerprint", "label", "facts", "encrypted", "hash_key", "status", "line",
    "superstep", "head", "head_seq", "head_hash", "event_seq", "event_hash", "decisions", "durable", "cancel_at",
    "input", "input_hash", "started_by", "on_behalf_of", "parent_run", "parent_line", "parent_task",
    "origin_checkpoint", "at_node", "tape", "error", "error_code", "created_at", "started_at", "ended_at",
)  # fmt: skip
"""What a bundle says of a run's row: all but its place in the queue, its seal and what the node in hand reported."""
SEALS = frozenset({"seal", "seal_key", "snapshot_seal"})
BYTES = {Checkpoint: ("change", "snapshot")}
"""Payload columns whose bytes a backend may keep elsewhere."""


@cache
def columns_of(model: type[Model]) -> tuple["Field[Any, Any]", ...]:
    """The fields that a line says, without those that the database numbers."""
    fields = model._meta.concrete_fields
    if model is Run:
        return tuple(field for field in fields if field.name in RUN_COLUMNS)
    return tuple(f for f in fields if f.name not in SEALS and f.get_internal_type() != "BigAutoField")


@cache
def payload_names(model: type[Model]) -> frozenset[str]:
    """The columns that hold packed bytes."""
    given: Any = model
    return frozenset((*getattr(given, "PAYLOADS", ()), *BYTES.get(given, ())))


class RowReader:
    """Rows of one run as JSON. It knows the names of the people that rows name, and asks for each once."""

    def __init__(self, run: Run) -> None:
        self._protection: Protection = protection_of(run)
        self._people: dict[int, str] = {}

    def json_of(self, row: Model) -> dict[str, Any]:
        """The columns of a row. A payload that cannot be read is said as {"kept": its bytes in base64}."""
        hidden = payload_names(type(row))
        return {
            field.name: self._payload(row, field.name) if field.name in hidden else self._value(row, field)
            for field in columns_of(type(row))
        }

    def name_people(self, ids: Iterable[int]) -> None:
        """Read the names of these people. One query."""
        users = get_user_model()
        rows = users._default_manager.filter(pk__in=set(ids) - self._people.keys())
        self._people.update(rows.values_list("pk", users.USERNAME_FIELD))

    def _value(self, row: Model, field: "Field[Any, Any]") -> Any:
        value = getattr(row, field.attname)
        if is_person(field) and value is not None:
            if value not in self._people:
                self.name_people([value])
            return self._people.get(value, "")
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        return str(value) if isinstance(value, UUID) else value

    def _payload(self, row: Model, column: str) -> Any:
        kept = bytes(getattr(row, column) or b"")
        if not kept:
            return ""
        try:
            stored = _stored(row, column, kept)
            if self._protection.encrypted:
                return base64.b64encode(stored).decode()
            return sealed_columns.read_bytes(row, column, stored).decode()
        except (CountersignError, UnicodeDecodeError):
            return {"kept": base64.b64encode(kept).decode()}


def is_person(field: "Field[Any, Any]") -> bool:
    """Whether a column names a user."""
    related: Any = field.related_model
    return related is not None and related._meta.label == settings.AUTH_USER_MODEL


def _stored(row: Model, column: str, kept: bytes) -> bytes:
    """The bytes that a column stands for, wherever a backend keeps them."""
    if isinstance(row, Checkpoint) and row.backend != payloads.DATABASE:
        return payloads.get_payload(row.backend, payloads.name_of(row.run_id, row.id, column), kept)
    return kept
