"""Many rows of one model in one statement, which gives once what all of them have in common. The journal calls it. It
knows no table.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model

from checkpoints import sql
from checkpoints.relations import document, relation

Names = tuple[str, ...]


def insert_all(rows: Sequence[Model], own: Names) -> None:
    """Insert new rows. `own` are the attributes in which they differ; the others are those of the first."""
    if not rows:
        return
    model, vendor = type(rows[0]), connections[DEFAULT_DB_ALIAS].vendor
    shared = tuple(name for name in _attributes(model) if name not in own)
    common = [sql.plain(getattr(rows[0], name), vendor) for name in shared]
    for begin in range(0, len(rows), sql.MOST_ROWS):
        some = rows[begin : begin + sql.MOST_ROWS]
        given = _given([attrgetter(*own)(row) for row in some], vendor)
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(_insert_sql(model, own, shared, len(some)), [*common, *given])


def update_all(before: Sequence[Model], after: Sequence[Model], *, own: Names, names: Names) -> int:
    """Give rows these attributes of theirs in `after`, where all their sealed fields are in the table as in `before`;
    so it needs no look at the rows, and never writes to one that was changed. Gives how many were written.

    `own` are the attributes in which the rows of `before` differ; the others are those of the first.
    """
    if not before:
        return 0
    model, vendor, written = type(before[0]), connections[DEFAULT_DB_ALIAS].vendor, 0
    known = [(name, getattr(before[0], name)) for name in _sealed(model) if name not in own]
    empty = tuple(name for name, value in known if value is None)
    common = [sql.plain(value, vendor) for _, value in known if value is not None]
    was, now = attrgetter(*own), attrgetter(*names)
    rows = [(*was(old), *now(new)) for old, new in zip(before, after, strict=True)]
    for begin in range(0, len(rows), sql.MOST_ROWS):
        some = rows[begin : begin + sql.MOST_ROWS]
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(_update_sql(model, own, names, empty, len(some)), [*_given(some, vendor), *common])
            written += cursor.rowcount
    return written


def _given(rows: Sequence[tuple[Any, ...]], vendor: str) -> list[Any]:
    """The parameters of the relation of these rows."""
    return [sql.plain(value, vendor) for row in rows for value in row] if vendor == "sqlite" else [document(rows)]


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], own: Names, shared: Names, rows: int) -> str:
    columns = ", ".join(_column(model, name) for name in (*shared, *own))
    casts = [f"%s::{cast}" if connection.vendor != "sqlite" else "%s" for cast in _casts(model, shared)]
    taken = ", ".join([*casts, *(f"given.c{n}" for n in range(len(own)))])
    table = sql.quoted(model._meta.db_table)
    return f"INSERT INTO {table} ({columns}) SELECT {taken} FROM {relation(_casts(model, own), rows)}"  # noqa: S608


@lru_cache(maxsize=500)
def _update_sql(model: type[Model], own: Names, names: Names, empty: Names, rows: int) -> str:
    table = sql.quoted(model._meta.db_table)
    sets = ", ".join(f"{_column(model, name)} = given.c{n}" for n, name in enumerate(names, start=len(own)))
    met = [f"{table}.{_column(model, name)} = given.c{n}" for n, name in enumerate(own)]
    known = [name for name in _sealed(model) if name not in own]
    met += [f"{table}.{_column(model, name)} {'IS NULL' if name in empty else '= %s'}" for name in known]
    given = relation(_casts(model, (*own, *names)), rows)
    return f"UPDATE {table} SET {sets} FROM {given} WHERE {' AND '.join(met)}"  # noqa: S608


@cache
def _fields(model: type[Model]) -> dict[str, Any]:
    """By attribute, the fields that are not made by the database."""
    return {f.attname: f for f in model._meta.concrete_fields if not f.primary_key}


def _attributes(model: type[Model]) -> Names:
    return tuple(_fields(model))


@cache
def _sealed(model: Any) -> Names:
    return tuple(name for name in _fields(model) if name not in model.UNSEALED)


def _casts(model: type[Model], names: Names) -> list[str]:
    return [sql.cast(_fields(model)[name]) for name in names]


def _column(model: type[Model], name: str) -> str:
    return sql.quoted(_fields(model)[name].column)
