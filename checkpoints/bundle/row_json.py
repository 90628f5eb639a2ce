"""Rows in the form of a bundle's lines: a JSON object of columns by name.

Payloads of a plain run are texts, exactly the canonical bytes; those of an encrypted
run are its encrypted bytes in base64. Times are ISO 8601 in UTC, ids are texts, people
are their user names.
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
    "id",
    "key",
    "graph",
    "version",
    "fingerprint",
    "label",
    "facts",
    "encrypted",
    "hash_key",
    "status",
    "line",
    "superstep",
    "head",
    "head_seq",
    "head_hash",
    "event_seq",
    "event_hash",
    "decisions",
    "durable",
    "cancel_at",
    "input",
    "input_hash",
    "started_by",
    "on_behalf_of",
    "parent_run",
    "parent_line",
    "parent_task",
    "origin_checkpoint",
    "at_node",
    "tape",
    "error",
    "error_code",
    "created_at",
    "started_at",
    "ended_at",
)
"""The columns of a run's row in a bundle: all but its place in the queue, its seal and
the progress of the node that runs.
"""
SEALS = frozenset({"seal", "seal_key", "snapshot_seal"})
BYTES = {Checkpoint: ("change", "snapshot")}
"""Payload columns whose bytes a backend may keep elsewhere."""


@cache
def columns_of(model: type[Model]) -> tuple["Field[Any, Any]", ...]:
    """Return the fields that a line holds, without those that the database numbers."""
    fields = model._meta.concrete_fields
    if model is Run:
        return tuple(field for field in fields if field.name in RUN_COLUMNS)
    columns = []
    for field in fields:
        # Numbers are granted again elsewhere, and seals are in separate lines.
        is_numbered = field.get_internal_type() == "BigAutoField"
        if field.name not in SEALS and not is_numbered:
            columns.append(field)
    return tuple(columns)


@cache
def payload_names(model: type[Model]) -> frozenset[str]:
    """Return the columns that hold packed bytes."""
    any_model: Any = model
    names = getattr(any_model, "PAYLOADS", ())
    return frozenset((*names, *BYTES.get(any_model, ())))


class RowReader:
    """Rows of one run as JSON. It remembers the names of the people in rows, and reads
    each once.
    """

    def __init__(self, run: Run) -> None:
        self._protection: Protection = protection_of(run)
        self._people: dict[int, str] = {}

    def json_of(self, row: Model) -> dict[str, Any]:
        """Return the columns of a row. A payload that cannot be read is {"kept": its
        bytes in base64}.
        """
        packed = payload_names(type(row))
        columns = {}
        for field in columns_of(type(row)):
            if field.name in packed:
                columns[field.name] = self._payload(row, field.name)
            else:
                columns[field.name] = self._value(row, field)
        return columns

    def name_people(self, ids: Iterable[int]) -> None:
        """Read the names of these people. One query."""
        users = get_user_model()
        unknown = set(ids) - self._people.keys()
        rows = users._default_manager.filter(pk__in=unknown)
        self._people.update(rows.values_list("pk", users.USERNAME_FIELD))

    def _value(self, row: Model, field: "Field[Any, Any]") -> Any:
        value = getattr(row, field.attname)
        if is_person(field) and value is not None:
            if value not in self._people:
                self.name_people([value])
            return self._people.get(value, "")
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        if isinstance(value, UUID):
            return str(value)
        return value

    def _payload(self, row: Model, column: str) -> Any:
        in_row = bytes(getattr(row, column) or b"")
        if not in_row:
            return ""
        try:
            stored = _stored(row, column, in_row)
            # As it is stored: nothing of an encrypted run is readable in its bundle.
            if self._protection.encrypted:
                return base64.b64encode(stored).decode()
            return sealed_columns.read_bytes(row, column, stored).decode()
        except (CountersignError, UnicodeDecodeError):
            # An unreadable value must not stop the export of a run as it is.
            return {"kept": base64.b64encode(in_row).decode()}


def is_person(field: "Field[Any, Any]") -> bool:
    """Return whether a column names a user."""
    related: Any = field.related_model
    return related is not None and related._meta.label == settings.AUTH_USER_MODEL


def _stored(row: Model, column: str, in_row: bytes) -> bytes:
    """Return the bytes that a column stands for, wherever a backend keeps them."""
    if not isinstance(row, Checkpoint) or row.backend == payloads.DATABASE:
        return in_row
    name = payloads.name_of(row.run_id, row.id, column)
    return payloads.get_payload(row.backend, name, in_row)
