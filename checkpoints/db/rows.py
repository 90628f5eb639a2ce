"""Rows of the database as instances of models, and values as a driver takes and gives them, where the ORM takes longer
than the database. Here alone a row is made without `Model.__init__`. It knows no table and writes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

import orjson
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model
from django.db.models.base import ModelState

Row = TypeVar("Row", bound=Model)
Other = TypeVar("Other", bound=Model)


class _Stored(ModelState):
    """The state of a row that is in the database."""

    adding = False
    db = DEFAULT_DB_ALIAS


def new_row(model: type[Row], stored: dict[str, Any] | None = None, /, **values: Any) -> Row:
    """A row as `model(**values)` makes it, by attribute names, at a fraction of the cost: nothing asks its signals. Or
    one that is in the database, of what is `stored` there: what is not among it is read when it is asked for.
    """
    row = model.__new__(model)
    if stored is not None:
        row.__dict__ = stored
        row._state = _Stored()
        return row
    plain, made = _defaults(model)
    for name, make in made.items():
        if name not in values:
            values[name] = make()
    row.__dict__ = {**plain, **values}
    row._state = ModelState()
    return row


@cache
def _defaults(model: type[Model]) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """The defaults of a model's fields: values, and functions that make one."""
    fields = model._meta.concrete_fields
    made = {f.attname: f.get_default for f in fields if f.has_default() and callable(f.default)}
    return {f.attname: f.get_default() for f in fields if f.attname not in made}, made


def fetch_rows(model: type[Row], names: Sequence[str], text: str, params: Iterable[Any]) -> list[Row]:
    """The rows of a SELECT whose columns set these attributes, in this order. Those of fields are converted as the ORM
    does, others are set as they come; what has no column is read when it is asked for.
    """
    now = connections[DEFAULT_DB_ALIAS]
    with now.cursor() as cursor:
        cursor.execute(text, [to_driver(value, now.vendor) for value in params])
        found = from_driver(model, names, cursor.fetchall(), now.vendor)
    return [new_row(model, dict(zip(names, values, strict=True))) for values in found]


def fetch_range(
    model: type[Row],
    between: Sequence[str],
    beside: type[Other],
    others: Sequence[str],
    text: str,
    params: Iterable[Any],
) -> tuple[list[Row], Other | None]:
    """The rows of a SELECT whose first columns are all of the model's, in any order; and what is behind them in the
    last row, the attributes `others` of a row that was joined. Of rows between the first and the last only the
    attributes `between` are set.
    """
    now = connections[DEFAULT_DB_ALIAS]
    with now.cursor() as cursor:
        cursor.execute(text, [to_driver(value, now.vendor) for value in params])
        found = cursor.fetchall()
        names = _attributes(model, tuple([column[0] for column in cursor.description]))
    if not found:
        return [], None
    ends = from_driver(model, names, [values[: len(names)] for values in (found[0], found[-1])], now.vendor)
    first, last = (new_row(model, dict(zip(names, values, strict=True))) for values in ends)
    chosen = itemgetter(*map(names.index, between))
    inner = from_driver(model, between, [chosen(values) for values in found[1:-1]], now.vendor)
    middle = [new_row(model, dict(zip(between, values, strict=True))) for values in inner]
    [joined] = from_driver(beside, others, [found[-1][len(names) :]], now.vendor)
    rows = [first, *middle, last] if len(found) > 1 else [last]
    return rows, new_row(beside, dict(zip(others, joined, strict=True)))


@cache
def _attributes(model: type[Model], columns: tuple[str, ...]) -> tuple[str, ...]:
    """The attributes of a model that the first of these columns set, as many as it has fields."""
    known = {f.column: f.attname for f in model._meta.concrete_fields}
    return tuple(known[column] for column in columns[: len(known)])


@cache
def named_columns(model: type[Model], names: tuple[str, ...], table: str) -> str:
    """The columns of these attributes, for the text of a SELECT that calls the model's table `table`."""
    known = {f.attname: f.column for f in model._meta.concrete_fields}
    return ", ".join(f'{table}."{known[name]}"' for name in names)


_PLAIN = frozenset({str, int, bytes, bool, type(None)})
AS_IT_IS = {"sqlite": _PLAIN, "postgresql": _PLAIN | {UUID, datetime}}
"""Types, by vendor, whose values a driver takes as they are."""


def to_driver(value: Any, vendor: str) -> Any:
    """A value as the driver takes it. SQLite keeps ids as hex and times as text, like the ORM."""
    kind = type(value)
    if kind in AS_IT_IS[vendor]:
        return value
    if kind is UUID:
        return value.hex
    if kind is datetime:
        return str(value.astimezone(UTC).replace(tzinfo=None))
    # Members of text enumerations: a driver may take them by name.
    return str.__str__(value) if isinstance(value, str) else value


def json_to_driver(value: Any, vendor: str) -> Any:
    """A value of a JSON column as the driver takes it."""
    return None if value is None else orjson.dumps(value).decode()


def from_driver(model: type[Model], names: Sequence[str], found: list[Any], vendor: str) -> list[Sequence[Any]]:
    """Rows as the driver gave them, with the values of these fields as the ORM would give them."""
    converters = _converters(model, tuple(names), vendor)
    if not converters:
        return found
    rows: list[Any] = [*map(list, found)]
    for at, convert in converters:
        for row in rows:
            if row[at] is not None:
                row[at] = convert(row[at])
    return rows


@cache
def _converters(model: type[Model], names: tuple[str, ...], vendor: str) -> list[tuple[int, Callable[[Any], Any]]]:
    """Places of values that a driver does not give as they are, and what makes of such a one what the ORM gives."""
    fields: list[Any] = list(model._meta.concrete_fields)
    kinds = {name: getattr(f, "target_field", f).get_internal_type() for f in fields for name in (f.name, f.attname)}
    known = _GIVEN[vendor]
    return [(at, known[kinds[name]]) for at, name in enumerate(names) if kinds.get(name) in known]


# Neighbouring rows name the same run, and each other as parents.
_uuid = lru_cache(maxsize=8)(UUID)
_GIVEN: dict[str, dict[str, Callable[[Any], Any]]] = {
    "sqlite": {"UUIDField": _uuid, "DateTimeField": lambda at: at.replace(tzinfo=UTC), "JSONField": orjson.loads},
    "postgresql": {"JSONField": orjson.loads},
}
