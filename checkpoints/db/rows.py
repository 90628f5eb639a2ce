"""Reads by a fixed text, where the ORM takes longer to compile a query than the database to answer it. The timeline,
the folding of checkpoints and `statements` come here. It knows no table and writes nothing.
"""

from collections.abc import Callable, Sequence
from datetime import UTC
from functools import cache, lru_cache
from typing import Any, TypeVar
from uuid import UUID

import orjson
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import BinaryField, DateTimeField, JSONField, Model, UUIDField
from django.db.models.base import ModelState

Row = TypeVar("Row", bound=Model)
Converters = Sequence[tuple[str, Callable[[Any], Any]]]


def fetch_rows(model: type[Row], names: Sequence[str], text: str, params: Sequence[Any]) -> list[Row]:
    """The rows of a SELECT whose columns set these attributes, in this order. Those of fields are converted as the ORM
    does, others are set as they come; what has no column is read when it is asked for.
    """
    now = connections[DEFAULT_DB_ALIAS]
    with now.cursor() as cursor:
        cursor.execute(text, [_param(value, now.vendor) for value in params])
        found = cursor.fetchall()
    converters = _converters(model, tuple(names), now.vendor)
    return [_row(model, dict(zip(names, values, strict=True)), converters) for values in found]


@cache
def named_columns(model: type[Model], names: tuple[str, ...], table: str) -> str:
    """The columns of these attributes, for the text of a SELECT that calls the model's table `table`."""
    known = {f.attname: f.column for f in model._meta.concrete_fields}
    return ", ".join(f'{table}."{known[name]}"' for name in names)


class _Stored(ModelState):
    """The state of a row that is in the database."""

    adding = False
    db = DEFAULT_DB_ALIAS


def _row(model: type[Row], values: dict[str, Any], converters: Converters) -> Row:
    for name, convert in converters:
        if values[name] is not None:
            values[name] = convert(values[name])
    row = model.__new__(model)
    row.__dict__ = values
    row._state = _Stored()
    return row


def _param(value: Any, vendor: str) -> Any:
    return value.hex if vendor == "sqlite" and isinstance(value, UUID) else value


@cache
def _converters(model: type[Model], names: tuple[str, ...], vendor: str) -> Converters:
    """The attributes that a driver does not give as they are, and what makes of its value what the ORM gives."""
    kinds: dict[str, Any] = {f.attname: type(getattr(f, "target_field", f)) for f in model._meta.concrete_fields}
    known = _GIVEN[vendor]
    return [(name, known[kinds[name]]) for name in names if kinds.get(name) in known]


# Neighbouring rows name the same run, and each other as parents.
_uuid = lru_cache(maxsize=8)(UUID)
_GIVEN: dict[str, dict[Any, Callable[[Any], Any]]] = {
    "sqlite": {UUIDField: _uuid, DateTimeField: lambda at: at.replace(tzinfo=UTC), JSONField: orjson.loads},
    "postgresql": {BinaryField: bytes, JSONField: orjson.loads},
}
