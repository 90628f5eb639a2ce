"""Many rows of one model in one statement, which gives once what all of them have in common. The journal calls it. It
knows no table.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model

from checkpoints.db import statements
from checkpoints.db.relations import document, relation
from checkpoints.db.rows import to_driver

Names = tuple[str, ...]


def insert_all(rows: Sequence[Model], own: Names) -> None:
    """Insert new rows. `own` are the attributes in which they differ; the others are those of the first."""
    if not rows:
        return
    model, vendor = type(rows[0]), connections[DEFAULT_DB_ALIAS].vendor
    shared = tuple(name for name in _fields(model) if name not in own)
    common = [to_driver(getattr(rows[0], name), vendor) for name in shared]
    for begin in range(0, len(rows), statements.MOST_ROWS):
        some = rows[begin : begin + statements.MOST_ROWS]
        given = _given([attrgetter(*own)(row) for row in some], vendor)
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(_insert_sql(model, own, shared, len(some)), [*common, *given])


def update_all(before: Sequence[Model], after: Sequence[Model], *, own: Names, names: Names, alike: Names = ()) -> int:
    """Give rows these attributes of theirs in `after`, where all their fields are in the table as in `before`;
    so it needs no look at the rows, and never writes to one that was changed. Gives how many were written.

    `own` are the attributes in which the rows of `before` differ; the others are those of the first. `alike` is given
    to all as the first of `after` has it.
    """
    if not before:
        return 0
    model, vendor = type(before[0]), connections[DEFAULT_DB_ALIAS].vendor
    known = [(name, getattr(before[0], name)) for name in _fields(model) if name not in own]
    # Words of ours stand in the text: an index over some of them only would have SQLite read it anew for every value.
    fixed = tuple((name, value) for name, value in known if value is None or isinstance(value, Enum))
    first = [to_driver(getattr(after[0], name), vendor) for name in alike]
    last = [to_driver(value, vendor) for name, value in known if (name, value) not in fixed]
    was, now = attrgetter(*own), attrgetter(*names)
    rows = [(*now(new), *was(old)) for old, new in zip(before, after, strict=True)]
    text = _update_sql(model, alike, names, own, fixed)
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        if vendor == "sqlite":
            # To read one text with so many rows would take it longer than to do one after another.
            cursor.executemany(text, [(*first, *(to_driver(value, vendor) for value in row), *last) for row in rows])
        else:
            cursor.execute(text, [*first, document(rows), *last])
        return int(cursor.rowcount)


def _given(rows: Sequence[tuple[Any, ...]], vendor: str) -> list[Any]:
    """The parameters of the relation of these rows."""
    return [to_driver(value, vendor) for row in rows for value in row] if vendor == "sqlite" else [document(rows)]


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], own: Names, shared: Names, rows: int) -> str:
    columns = ", ".join(_column(model, name) for name in (*shared, *own))
    casts = [f"%s::{cast}" if connection.vendor != "sqlite" else "%s" for cast in _casts(model, shared)]
    taken = ", ".join([*casts, *(f"given.c{n}" for n in range(len(own)))])
    table = statements.quoted(model._meta.db_table)
    return f"INSERT INTO {table} ({columns}) SELECT {taken} FROM {relation(_casts(model, own), rows)}"  # noqa: S608


@lru_cache(maxsize=500)
def _update_sql(
    model: type[Model], alike: Names, names: Names, own: Names, fixed: tuple[tuple[str, Enum | None], ...]
) -> str:
    """On SQLite for one row, on PostgreSQL for those of a relation."""
    table, one = statements.quoted(model._meta.db_table), connection.vendor == "sqlite"
    places = ["%s" if one else f"given.c{n}" for n in range(len(names) + len(own))]
    given = "" if one else f" FROM {relation(_casts(model, (*names, *own)), 0)}"
    sets = [f"{_column(model, name)} = %s" for name in alike]
    sets += [f"{_column(model, name)} = {place}" for name, place in zip(names, places, strict=False)]
    met = [f"{table}.{_column(model, name)} = {place}" for name, place in zip(own, places[len(names) :], strict=True)]
    words = {name: f"= '{word.value}'" if word else "IS NULL" for name, word in fixed}
    known = [name for name in _fields(model) if name not in own]
    met += [f"{table}.{_column(model, name)} {words.get(name, '= %s')}" for name in known]
    return f"UPDATE {table} SET {', '.join(sets)}{given} WHERE {' AND '.join(met)}"  # noqa: S608


@cache
def _fields(model: type[Model]) -> dict[str, Any]:
    """By attribute, the fields that are not made by the database."""
    return {f.attname: f for f in model._meta.concrete_fields if not f.primary_key}


def _casts(model: type[Model], names: Names) -> list[str]:
    return [statements.cast(_fields(model)[name]) for name in names]


def _column(model: type[Model], name: str) -> str:
    return statements.quoted(_fields(model)[name].column)
