"""Rows of the database as instances of models, and the conversion of values for
drivers, where the ORM takes longer than the database. No other module makes a row
without `Model.__init__`. It knows no table and writes nothing.
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


def new_row(
    model: type[Row],
    stored: dict[str, Any] | None = None,
    /,
    **values: Any,
) -> Row:
    """Return a row as `model(**values)` makes it, by attribute names, at a fraction of
    the cost: no signals are sent. Or one that is in the database, with the attributes
    that are `stored` there: others are read when they are used.
    """
    row = model.__new__(model)
    if stored is not None:
        row.__dict__ = stored
        row._state = _Stored()
        return row
    # Values that are rebuilt for each row, unless they are passed.
    constants, factories = _defaults(model)
    for name, make in factories.items():
        if name not in values:
            values[name] = make()
    row.__dict__ = {**constants, **values}
    row._state = ModelState()
    return row


def mark_stored(row: Model) -> None:
    """Make a row that was inserted without the ORM count as one that is in the
    database.
    """
    row._state.adding = False
    row._state.db = DEFAULT_DB_ALIAS


@cache
def _defaults(
    model: type[Model],
) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Return the defaults of a model's fields: values, and functions that make one."""
    constants = {}
    factories = {}
    for field in model._meta.concrete_fields:
        if field.has_default() and callable(field.default):
            factories[field.attname] = field.get_default
        else:
            constants[field.attname] = field.get_default()
    return constants, factories


def fetch_rows(
    model: type[Row],
    names: Sequence[str],
    text: str,
    params: Iterable[Any],
) -> list[Row]:
    """Return the rows of a SELECT whose columns set these attributes, in this order.
    Those of fields are converted as the ORM does, others are set as they come;
    attributes without a column are read when they are used.
    """
    database = connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor
    with database.cursor() as cursor:
        cursor.execute(text, to_driver_all(params, vendor))
        records = from_driver(model, names, cursor.fetchall(), vendor)
    rows = []
    for record in records:
        rows.append(new_row(model, dict(zip(names, record, strict=True))))
    return rows


def fetch_records(text: str, params: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the records of a SELECT as the driver returns them."""
    database = connections[DEFAULT_DB_ALIAS]
    with database.cursor() as cursor:
        cursor.execute(text, to_driver_all(params, database.vendor))
        records: list[tuple[Any, ...]] = cursor.fetchall()
    return records


def fetch_joined(
    model: type[Row],
    names: Sequence[str],
    relation: str,
    related_names: Sequence[str],
    text: str,
    params: Iterable[Any],
) -> list[Row]:
    """Return the rows of a SELECT as `fetch_rows` does. Its columns behind those of
    `names` set the attributes `related_names` of the row to which the foreign key
    `relation` refers.
    """
    database = connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor
    with database.cursor() as cursor:
        cursor.execute(text, to_driver_all(params, vendor))
        records = cursor.fetchall()
    related: type[Model] = model._meta.get_field(relation).related_model  # type: ignore[assignment]
    count = len(names)
    own_records = from_driver(
        model, names, [record[:count] for record in records], vendor
    )
    related_records = from_driver(
        related, related_names, [record[count:] for record in records], vendor
    )
    rows = []
    for own, other in zip(own_records, related_records, strict=True):
        row = new_row(model, dict(zip(names, own, strict=True)))
        # As `select_related` keeps it.
        row._state.fields_cache[relation] = new_row(
            related, dict(zip(related_names, other, strict=True))
        )
        rows.append(row)
    return rows


def fetch_range(
    model: type[Row],
    between: Sequence[str],
    beside: type[Other],
    others: Sequence[str],
    text: str,
    params: Iterable[Any],
) -> tuple[list[Row], Other | None]:
    """Return the rows of a SELECT whose first columns are all of the model's, in their
    order (`attributes_of`); and the row of `beside` that was joined to the last one,
    whose attributes `others` are in the columns after them. Of rows between the first
    and the last only the attributes `between` are set.
    """
    database = connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor
    with database.cursor() as cursor:
        cursor.execute(text, to_driver_all(params, vendor))
        records = cursor.fetchall()
    if not records:
        return [], None
    names = attributes_of(model)

    # The first and the last row with all attributes.
    first_record = records[0][: len(names)]
    last_record = records[-1][: len(names)]
    ends = from_driver(model, names, [first_record, last_record], vendor)
    first = new_row(model, dict(zip(names, ends[0], strict=True)))
    last = new_row(model, dict(zip(names, ends[1], strict=True)))

    # Most of a long range lies between them, and few of its values are converted.
    pick_between = itemgetter(*map(names.index, between))
    picked = [pick_between(record) for record in records[1:-1]]
    middle = []
    for values in from_driver(model, between, picked, vendor):
        middle.append(new_row(model, dict(zip(between, values, strict=True))))

    joined_record = records[-1][len(names) :]
    [joined] = from_driver(beside, others, [joined_record], vendor)
    joined_row = new_row(beside, dict(zip(others, joined, strict=True)))
    if len(records) == 1:
        return [last], joined_row
    return [first, *middle, last], joined_row


@cache
def attributes_of(model: type[Model], without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the attributes of a model's columns, in the order in which the ORM selects
    them.
    """
    names = [field.attname for field in model._meta.concrete_fields]
    return tuple(name for name in names if name not in without)


@cache
def named_columns(
    model: type[Model],
    names: tuple[str, ...],
    table: str,
) -> str:
    """Return the columns of these attributes, for the text of a SELECT in which the
    model's table is called `table`.
    """
    columns = {field.attname: field.column for field in model._meta.concrete_fields}
    quoted = [f'{table}."{columns[name]}"' for name in names]
    return ", ".join(quoted)


_PLAIN = frozenset({str, int, bytes, bool, type(None)})
AS_IT_IS = {
    "sqlite": _PLAIN,
    "postgresql": _PLAIN | {UUID, datetime},
}
"""Types, by vendor, whose values a driver takes as they are."""


@lru_cache(maxsize=8)
def _text_of_moment(moment: datetime) -> str:
    """Return a moment as SQLite keeps it. The rows of one commit share their moment."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))


TEXTS: dict[type, Callable[[Any], str]] = {
    # As `hex` has it, without a property between.
    UUID: "{0.int:032x}".format,
    datetime: _text_of_moment,
}
"""By type, the functions that make a text of values which a driver does not take."""


def to_driver(value: Any, vendor: str) -> Any:
    """Return a value as the driver takes it. SQLite keeps ids as hex and times as text,
    like the ORM.
    """
    kind = type(value)
    if kind in AS_IT_IS[vendor]:
        return value
    text_of = TEXTS.get(kind)
    if text_of is not None:
        return text_of(value)
    # Members of text enumerations: a driver may take them by name.
    if isinstance(value, str):
        return str.__str__(value)
    return value


def to_driver_all(values: Iterable[Any], vendor: str) -> list[Any]:
    """Return `to_driver` of each of these values, most of which enter no function."""
    as_it_is = AS_IT_IS[vendor]
    adapted: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in as_it_is:
            adapted.append(value)
        elif kind in TEXTS:
            adapted.append(TEXTS[kind](value))
        else:
            adapted.append(to_driver(value, vendor))
    return adapted


def json_to_driver(value: Any, vendor: str) -> Any:
    """Return a value of a JSON column as the driver takes it."""
    if value is None:
        return None
    return orjson.dumps(value).decode()


def from_driver(
    model: type[Model],
    names: Sequence[str],
    records: list[Any],
    vendor: str,
) -> list[Sequence[Any]]:
    """Return the driver's records with the values of these fields as the ORM would
    return them.
    """
    converters = _converters(model, tuple(names), vendor)
    if not converters:
        return records
    # A record of the driver is a tuple, which cannot be changed.
    converted: list[Any] = [*map(list, records)]
    for position, convert in converters:
        for record in converted:
            if record[position] is not None:
                record[position] = convert(record[position])
    return converted


@cache
def _converters(
    model: type[Model],
    names: tuple[str, ...],
    vendor: str,
) -> list[tuple[int, Callable[[Any], Any]]]:
    """Return the positions of values that a driver does not return as the ORM does, and
    the functions that convert them.
    """
    fields: list[Any] = list(model._meta.concrete_fields)
    type_names = {}
    for field in fields:
        # A foreign key has the values of the key that it refers to.
        type_name = getattr(field, "target_field", field).get_internal_type()
        type_names[field.name] = type_name
        type_names[field.attname] = type_name
    converters = []
    for position, name in enumerate(names):
        convert = _CONVERTERS[vendor].get(type_names.get(name, ""))
        if convert is not None:
            converters.append((position, convert))
    return converters


# Neighbouring rows name the same run, and each other as parents.
_uuid = lru_cache(maxsize=8)(UUID)


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


_CONVERTERS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "sqlite": {
        "UUIDField": _uuid,
        "DateTimeField": _in_utc,
        "JSONField": orjson.loads,
    },
    "postgresql": {"JSONField": orjson.loads},
}
"""By vendor and type of field, the functions that convert values of a driver."""
