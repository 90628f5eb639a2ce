"""Rows made from lines of a bundle: each value checked against its column before
anything is written.

A value that is refused raises `ValueError` with a sentence that names the column.
"""

import base64
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Field, ForeignKey, Model

from checkpoints.bundle.row_json import columns_of, is_person, payload_names
from checkpoints.bundle.row_shapes import Shapes, require_shapes
from checkpoints.core import codec
from checkpoints.core.ids import is_storable
from checkpoints.core.keyring import ENCRYPTED
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import canonical

People = Mapping[str, int]
"""Users by name, if the people of a bundle are users of this installation."""


def row_of(
    model: type[Model],
    columns: Any,
    *,
    encrypted: bool,
    people: People,
    shapes: Shapes,
    erased: Collection[str] = frozenset(),
) -> Any:
    """Return the unsaved row of a line. Payload columns hold packed bytes, encrypted
    ones as they were stored. The JSON in its columns has these shapes, except where
    something was `erased` or is encrypted.
    """
    fields = _fields_of(model, columns)
    values: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    packed = payload_names(model)
    for name, field in fields.items():
        if name in packed:
            values[name] = _bytes(name, columns[name], contents, encrypted=encrypted)
        elif is_person(field):
            values[field.attname] = _person(field, columns[name], people)
        else:
            values[field.attname] = _value(field, columns[name])
            if field.get_internal_type() == "JSONField":
                contents[name] = values[field.attname]

    # A shape may depend on other columns of the row.
    row = model(**values)
    for name in erased:
        contents.pop(name, None)
    require_shapes(row, contents, shapes)
    return row


def _fields_of(model: type[Model], columns: Any) -> dict[str, "Field[Any, Any]"]:
    """Return the fields of these columns, by name. Raises `ValueError` if a model has
    others.
    """
    fields = {field.name: field for field in columns_of(model)}
    # A bundle that was written before a column was added has none of it.
    missing = set(fields).difference(columns) if isinstance(columns, dict) else {""}
    if not missing <= set(getattr(model, "ADDED", ())):
        raise ValueError(f"a row of {model._meta.db_table} has other columns")
    for name in missing:
        del fields[name]
    if columns.keys() != fields.keys():
        raise ValueError(f"a row of {model._meta.db_table} has other columns")
    return fields


def _person(field: "Field[Any, Any]", value: Any, people: People) -> int | None:
    if value is None:
        return None
    return people.get(_text(field, value))


def _bytes(
    name: str, value: Any, contents: dict[str, Any], *, encrypted: bool
) -> bytes:
    """Return a payload as a column keeps it, and put its value into `contents` if it
    can be read.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} is not carried as a text")
    if not value:
        return b""
    if encrypted:
        packed = base64.b64decode(value, validate=True)
        if packed[:1] != ENCRYPTED:
            raise ValueError(f"{name} is not encrypted")
        return packed
    data = value.encode()
    contents[name] = _normalised(name, canonical.loads(data))
    # Hashes are over these bytes, so the same value in another form would not verify.
    if canonical.encode(contents[name]) != data:
        raise ValueError(f"{name} is not in canonical form")
    return codec.pack(data)


def _value(field: "Field[Any, Any]", value: Any) -> Any:
    if value is None:
        if not field.null:
            raise ValueError(f"{field.name} must not be empty")
        return None
    kind = "UUIDField" if isinstance(field, ForeignKey) else field.get_internal_type()
    reader: Callable[[Any, Any], Any] = _READERS.get(kind, _number)
    column_value = reader(field, value)
    if field.choices:
        choices = {choice for choice, _ in field.flatchoices}
        if column_value not in choices:
            raise ValueError(f"{field.name} is none of its choices")
    return column_value


def _text(field: "Field[Any, Any]", value: Any) -> str:
    fits = isinstance(value, str) and is_storable(value)
    if fits and field.max_length:
        fits = len(value) <= field.max_length
    if not fits:
        raise ValueError(f"{field.name} is no text that fits its column")
    return str(value)


def _uuid(field: "Field[Any, Any]", value: Any) -> UUID:
    # UUID() takes other spellings too.
    id_ = UUID(value) if isinstance(value, str) else None
    if id_ is None or str(id_) != value:
        raise ValueError(f"{field.name} is no id")
    return id_


def _moment(field: "Field[Any, Any]", value: Any) -> datetime:
    moment = datetime.fromisoformat(_text(field, value))
    # Hashes of events are over this text, so a moment may be written in one way only.
    if moment.tzinfo is None or moment.isoformat() != value:
        raise ValueError(f"{field.name} is no time in UTC")
    return moment


def _yes_or_no(field: "Field[Any, Any]", value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{field.name} is neither true nor false")
    return value


def _float(field: "Field[Any, Any]", value: Any) -> float:
    # To Python a truth value is a number.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field.name} is no number")
    return float(value)


def _json(field: "Field[Any, Any]", value: Any) -> Any:
    return _normalised(field.name, value)


def _normalised(name: str, value: Any) -> Any:
    try:
        return canonical.normalised(value)
    except InvalidValue as error:
        raise ValueError(f"{name}: {error.message}") from None


def _number(field: "Field[Any, Any]", value: Any) -> int:
    least, most = _range(field.get_internal_type())
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise ValueError(f"{field.name} is no whole number that fits its column")
    return int(value)


@cache
def _range(kind: str) -> tuple[int, int]:
    least, most = connection.ops.integer_field_range(kind)
    # A database that names no limit keeps 64 bits.
    if least is None:
        least = -(2**63)
    if most is None:
        most = 2**63 - 1
    return least, most


_READERS = {
    "CharField": _text,
    "TextField": _text,
    "UUIDField": _uuid,
    "DateTimeField": _moment,
    "BooleanField": _yes_or_no,
    "FloatField": _float,
    "JSONField": _json,
}
