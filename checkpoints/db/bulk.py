"""Many rows of one model in one statement, in which the values that all of them share
stand once. The journal calls it, and the fenced transaction writes rows by its
relation. It knows no table.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import orjson
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model

from checkpoints.db.rows import to_driver, to_driver_all
from checkpoints.db.statements import (
    MOST_ROWS,
    Texts,
    cast,
    column,
    field_of,
    quoted,
    update_sql,
    values_sql,
)

Names = tuple[str, ...]


def relation(casts: Sequence[str], rows: int) -> str:
    """Return the SQL of a relation named `given` with this many rows, whose columns
    have these types and are called column1, column2 … PostgreSQL gets them as one JSON
    document: a thousand parameters cost its driver more than the rows cost the server.
    """
    if connection.vendor == "sqlite":
        places = ["%s"] * len(casts)
        return f"(VALUES {values_sql(rows, places)}) AS given"
    columns = []
    raw_columns = []
    for number, cast_type in enumerate(casts, start=1):
        # JSON has no bytes, so they travel as text.
        if cast_type == "bytea":
            columns.append(f"decode(c{number}, 'hex') AS column{number}")
            raw_columns.append(f"c{number} text")
        else:
            columns.append(f"c{number} AS column{number}")
            raw_columns.append(f"c{number} {cast_type}")
    return (
        f"(SELECT {', '.join(columns)} FROM json_to_recordset(%s::json) "  # noqa: S608
        f"AS raw({', '.join(raw_columns)})) AS given"
    )


def relation_params(rows: Sequence[Sequence[Any]], vendor: str) -> list[Any]:
    """Return the parameters of the relation of these rows. Values are as fields have
    them; bytes, times and ids too.
    """
    if vendor == "sqlite":
        params = []
        for row in rows:
            params += to_driver_all(row, vendor)
        return params
    names = [f"c{number}" for number in range(1, len(rows[0]) + 1)]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return [orjson.dumps(records, default=_hex).decode()]


def _hex(value: bytes | memoryview) -> str:
    return value.hex()


def insert_all(rows: Sequence[Model], own: Names) -> None:
    """Insert new rows. `own` are the attributes in which they differ; the others are
    those of the first.
    """
    if not rows:
        return
    model = type(rows[0])
    database = connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor
    common = [to_driver(getattr(rows[0], name), vendor) for name in _others(model, own)]
    own_values = attrgetter(*own)
    for begin in range(0, len(rows), MOST_ROWS):
        batch = rows[begin : begin + MOST_ROWS]
        params = relation_params([own_values(row) for row in batch], vendor)
        with database.cursor() as cursor:
            cursor.execute(_insert_sql(model, own, len(batch)), [*common, *params])


def update_all(
    before: Sequence[Model],
    after: Sequence[Model],
    *,
    own: Names,
    names: Names,
    alike: Names = (),
) -> int:
    """Update rows to the attributes `names` that they have in `after`, where all fields
    are in the table as in `before`; so the rows need not be read, and one that was
    changed is never written. Returns how many were written.

    `own` are the attributes in which the rows of `before` differ; the others are those
    of the first. `alike` is given to all as the first of `after` has it.
    """
    if not before:
        return 0
    model = type(before[0])
    database = connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor

    # The parameters stand in the order of the text: assignments that all rows share,
    # the relation, conditions that all rows share.
    first = [to_driver(getattr(after[0], name), vendor) for name in alike]
    same, last = _shared_conditions(before[0], own, vendor)
    old_values = attrgetter(*own)
    new_values = attrgetter(*names)
    rows = []
    for old, new in zip(before, after, strict=True):
        rows.append((*new_values(new), *old_values(old)))

    # The text of PostgreSQL is the same for any number of rows.
    most = _MOST_IN_ONE_TEXT if vendor == "sqlite" else len(rows)
    number_updated = 0
    with database.cursor() as cursor:
        for begin in range(0, len(rows), most):
            batch = rows[begin : begin + most]
            text = _update_sql(
                model, names, own, rows=len(batch), alike=alike, same=same
            )
            cursor.execute(text, [*first, *relation_params(batch, vendor), *last])
            number_updated += cursor.rowcount
    return number_updated


_MOST_IN_ONE_TEXT = 50
"""The most rows of which SQLite reads the text as fast as it executes it."""


def _shared_conditions(row: Model, own: Names, vendor: str) -> tuple[Texts, list[Any]]:
    """Return the conditions that the attributes of `row` but for its `own` are in the
    table as they are here, and their parameters.
    """
    conditions = []
    params = []
    for name in _others(type(row), own):
        value = getattr(row, name)
        if value is None:
            conditions.append((name, "IS NULL"))
        elif isinstance(value, Enum):
            # Our own constants are part of the text: with an index over some of them
            # only, SQLite would prepare it again for every value.
            conditions.append((name, f"= '{value.value}'"))
        else:
            conditions.append((name, "= %s"))
            params.append(to_driver(value, vendor))
    return tuple(conditions), params


def update_each(
    rows: Sequence[Model], names: Sequence[str], *, was: str, before: Sequence[Any]
) -> set[Any]:
    """Write these fields of each row, where its field `was` has in the table the value
    that `before` has for that row. Returns the keys of the rows that were written. One
    statement for up to 500 rows.
    """
    written: set[Any] = set()
    if not rows:
        return written
    model = type(rows[0])
    database = connections[DEFAULT_DB_ALIAS]
    new_values = attrgetter(*(field_of(model, name).attname for name in names))
    for begin in range(0, len(rows), MOST_ROWS):
        batch = rows[begin : begin + MOST_ROWS]
        old_values = before[begin : begin + MOST_ROWS]
        params = []
        for row, old in zip(batch, old_values, strict=True):
            params.append((*new_values(row), row.pk, old))
        text = _update_sql(
            model, tuple(names), ("id", was), rows=len(batch), returning=("id",)
        )
        with database.cursor() as cursor:
            cursor.execute(text, relation_params(params, database.vendor))
            written.update(key for (key,) in cursor.fetchall())
    return written


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], own: Names, rows: int) -> str:
    others = _others(model, own)
    columns = ", ".join(column(model, name) for name in (*others, *own))
    if connection.vendor == "postgresql":
        # In a SELECT nothing but a cast gives the type of a parameter.
        values = [f"%s::{cast(model, name)}" for name in others]
    else:
        values = ["%s"] * len(others)
    values += [f"given.column{number}" for number in range(1, len(own) + 1)]
    source = relation([cast(model, name) for name in own], rows)
    return (
        f"INSERT INTO {quoted(model._meta.db_table)} ({columns}) "  # noqa: S608
        f"SELECT {', '.join(values)} FROM {source}"
    )


@lru_cache(maxsize=500)
def _update_sql(
    model: type[Model],
    names: Names,
    own: Names,
    *,
    rows: int,
    alike: Names = (),
    same: Texts = (),
    returning: Names = (),
) -> str:
    """Return an UPDATE that sets `alike` and `names` where `own` and `same` are met.
    `names` and `own` are the columns of a relation of `rows` rows.
    """
    columns = (*names, *own)
    source = relation([cast(model, name) for name in columns], rows)
    places = [f"given.column{number}" for number in range(1, len(columns) + 1)]
    sets = [(name, "%s") for name in alike]
    sets += zip(names, places[: len(names)], strict=True)
    met = []
    for name, place in zip(own, places[len(names) :], strict=True):
        met.append((name, f"= {place}"))
    return update_sql(model, tuple(sets), (*met, *same), returning, source)


@cache
def _others(model: type[Model], own: Names) -> Names:
    """Return the attributes of a row but for its own, and for the key that the database
    makes.
    """
    return tuple(
        f.attname
        for f in model._meta.concrete_fields
        if not f.primary_key and f.attname not in own
    )
