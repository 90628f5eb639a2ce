"""Rows back from lines of a bundle: each value checked against its column before anything is written.

What is refused raises `ValueError` with a sentence that names the column.
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
from orchestrator.engine import canonical
from orchestrator.engine.errors import InvalidValue

People = Mapping[str, int]
"""Users by name, where the people of a bundle are people here."""


def row_of(
    model: type[Model],
    said: Any,
    *,
    encrypted: bool,
    people: People,
    shapes: Shapes,
    erased: Collection[str] = frozenset(),
) -> Any:
    """The unsaved row that a line says. Payload columns hold packed bytes, encrypted ones as they were kept. The JSON
    in its columns has these shapes, but for those of which something was `erased`, and those that are encrypted.
    """
    fields = {field.name: field for field in columns_of(model)}
    if not isinstance(said, dict) or said.keys() != fields.keys():
        raise ValueError(f"a row of {model._meta.db_table} has other columns")
    values: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    for name, field in fields.items():
        if name in payload_names(model):
            values[name] = _bytes(name, said[name], contents, encrypted=encrypted)
        elif is_person(field):
            values[field.attname] = None if said[name] is None else people.get(_text(field, said[name]))
        else:
            values[field.attname] = _value(field, said[name])
            if field.get_internal_type() == "JSONField":
                contents[name] = values[field.attname]
    row = model(**values)
    require_shapes(row, {name: value for name, value in contents.items() if name not in erased}, shapes)
    return row


def _bytes(name: str, said: Any, contents: dict[str, Any], *, encrypted: bool) -> bytes:
    """A payload as a column keeps it. Its value is put into `contents`, if it can be read."""
    if not isinstance(said, str):
        raise ValueError(f"{name} is not carried as a text")
    if not said:
        return b""
    if encrypted:
        kept = base64.b64decode(said, validate=True)
        if kept[:1] != ENCRYPTED:
            raise ValueError(f"{name} is not encrypted")
        return kept
    data = said.encode()
    contents[name] = _normalised(name, canonical.loads(data))
    if canonical.encode(contents[name]) != data:
        raise ValueError(f"{name} is not in canonical form")
    return codec.pack(data)


def _value(field: "Field[Any, Any]", said: Any) -> Any:
    if said is None:
        if not field.null:
            raise ValueError(f"{field.name} must not be empty")
        return None
    kind = "UUIDField" if isinstance(field, ForeignKey) else field.get_internal_type()
    reader: Callable[[Any, Any], Any] = _READERS.get(kind, _number)
    found = reader(field, said)
    if field.choices and found not in {value for value, _ in field.flatchoices}:
        raise ValueError(f"{field.name} is none of its choices")
    return found


def _text(field: "Field[Any, Any]", said: Any) -> str:
    if not isinstance(said, str) or not is_storable(said) or len(said) > (field.max_length or len(said)):
        raise ValueError(f"{field.name} is no text that fits its column")
    return said


def _uuid(field: "Field[Any, Any]", said: Any) -> UUID:
    found = UUID(said) if isinstance(said, str) else None
    if found is None or str(found) != said:
        raise ValueError(f"{field.name} is no id")
    return found


def _moment(field: "Field[Any, Any]", said: Any) -> datetime:
    found = datetime.fromisoformat(_text(field, said))
    if found.tzinfo is None or found.isoformat() != said:
        raise ValueError(f"{field.name} is no time in UTC")
    return found


def _yes_or_no(field: "Field[Any, Any]", said: Any) -> bool:
    if not isinstance(said, bool):
        raise ValueError(f"{field.name} is neither true nor false")
    return said


def _float(field: "Field[Any, Any]", said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise ValueError(f"{field.name} is no number")
    return float(said)


def _json(field: "Field[Any, Any]", said: Any) -> Any:
    return _normalised(field.name, said)


def _normalised(name: str, said: Any) -> Any:
    try:
        return canonical.normalised(said)
    except InvalidValue as error:
        raise ValueError(f"{name}: {error.message}") from None


def _number(field: "Field[Any, Any]", said: Any) -> int:
    least, most = _range(field.get_internal_type())
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise ValueError(f"{field.name} is no whole number that fits its column")
    return said


@cache
def _range(kind: str) -> tuple[int, int]:
    least, most = connection.ops.integer_field_range(kind)
    bound = 2**63
    return (-bound if least is None else least), (bound - 1 if most is None else most)


_READERS = {
    "CharField": _text,
    "TextField": _text,
    "UUIDField": _uuid,
    "DateTimeField": _moment,
    "BooleanField": _yes_or_no,
    "FloatField": _float,
    "JSONField": _json,
}
