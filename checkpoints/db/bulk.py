"""Many rows of one model in one statement, which gives once what all of them have in common. The journal calls it, and
the fenced transaction writes rows by its relation. It knows no table.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import orjson
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model

from checkpoints.db.rows import to_driver
from checkpoints.db.statements import MOST_ROWS, Texts, cast, column, field_of, quoted, update_sql, values_sql

Names = tuple[str, ...]


def relation(casts: Sequence[str], rows: int) -> str:
    """The text of a relation `given` of so many rows of columns of these types, called column1, column2 ... PostgreSQL
    gets them as one JSON document: some thousand parameters cost its driver more than the rows cost the server.
    """
    if connection.vendor == "sqlite":
        return f"(VALUES {values_sql(rows, ['%s'] * len(casts))}) AS given"
    given = list(enumerate(casts, start=1))
    columns = ", ".join(f"decode(c{n}, 'hex') AS column{n}" if c == "bytea" else f"c{n} AS column{n}" for n, c in given)
    raw = ", ".join(f"c{n} {'text' if c == 'bytea' else c}" for n, c in given)
    return f"(SELECT {columns} FROM json_to_recordset(%s::json) AS raw({raw})) AS given"  # noqa: S608


def relation_params(rows: Sequence[Sequence[Any]], vendor: str) -> list[Any]:
    """The parameters of the relation of these rows. Values are as fields have them; bytes, times and ids too."""
    if vendor == "sqlite":
        return [to_driver(value, vendor) for row in rows for value in row]
    names = [f"c{n}" for n in range(1, len(rows[0]) + 1)]
    return [orjson.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_hex).decode()]


def _hex(value: bytes | memoryview) -> str:
    return value.hex()


def insert_all(rows: Sequence[Model], own: Names) -> None:
    """Insert new rows. `own` are the attributes in which they differ; the others are those of the first."""
    if not rows:
        return
    model, now = type(rows[0]), connections[DEFAULT_DB_ALIAS]
    common = [to_driver(getattr(rows[0], name), now.vendor) for name in _others(model, own)]
    for begin in range(0, len(rows), MOST_ROWS):
        some = rows[begin : begin + MOST_ROWS]
        given = relation_params([attrgetter(*own)(row) for row in some], now.vendor)
        with now.cursor() as cursor:
            cursor.execute(_insert_sql(model, own, len(some)), [*common, *given])


def update_all(before: Sequence[Model], after: Sequence[Model], *, own: Names, names: Names, alike: Names = ()) -> int:
    """Give rows these attributes of theirs in `after`, where all their fields are in the table as in `before`;
    so it needs no look at the rows, and never writes to one that was changed. Gives how many were written.

    `own` are the attributes in which the rows of `before` differ; the others are those of the first. `alike` is given
    to all as the first of `after` has it.
    """
    if not before:
        return 0
    model, now = type(before[0]), connections[DEFAULT_DB_ALIAS]
    known = [(name, getattr(before[0], name)) for name in _others(model, own)]
    # Words of ours stand in the text: an index over some of them only would have SQLite read it anew for every value.
    same = tuple(
        [(name, f"= '{v.value}'" if isinstance(v, Enum) else "IS NULL" if v is None else "= %s") for name, v in known]
    )
    first = [to_driver(getattr(after[0], name), now.vendor) for name in alike]
    last = [to_driver(v, now.vendor) for _, v in known if v is not None and not isinstance(v, Enum)]
    old, new = attrgetter(*own), attrgetter(*names)
    rows = [(*new(one), *old(other)) for other, one in zip(before, after, strict=True)]
    with now.cursor() as cursor:
        if now.vendor == "sqlite":
            # To read one text with so many rows would take it longer than to do one after another.
            text = _update_sql(model, names, own, rows=0, alike=alike, same=same)
            cursor.executemany(text, [[*first, *relation_params([row], now.vendor), *last] for row in rows])
        else:
            text = _update_sql(model, names, own, rows=1, alike=alike, same=same)  # or any number
            cursor.execute(text, [*first, *relation_params(rows, now.vendor), *last])
        return int(cursor.rowcount)


def update_each(rows: Sequence[Model], names: Sequence[str], *, was: str, before: Sequence[Any]) -> set[Any]:
    """Write these fields of each row, where its field `was` is in the table what `before` says for that row; gives the
    keys of the rows that were written. One statement for up to 500 rows.
    """
    written: set[Any] = set()
    now = connections[DEFAULT_DB_ALIAS]
    for begin in range(0, len(rows), MOST_ROWS):
        some, model = rows[begin : begin + MOST_ROWS], type(rows[0])
        new = attrgetter(*(field_of(model, name).attname for name in names))
        given = [(*new(row), row.pk, old) for row, old in zip(some, before[begin : begin + MOST_ROWS], strict=True)]
        text = _update_sql(model, tuple(names), ("id", was), rows=len(some), told=("id",))
        with now.cursor() as cursor:
            cursor.execute(text, relation_params(given, now.vendor))
            written.update(key for (key,) in cursor.fetchall())
    return written


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], own: Names, rows: int) -> str:
    others = _others(model, own)
    columns = ", ".join(column(model, name) for name in (*others, *own))
    common = [f"%s::{cast(model, name)}" if connection.vendor == "postgresql" else "%s" for name in others]
    taken = ", ".join([*common, *(f"given.column{n + 1}" for n in range(len(own)))])
    given = relation([cast(model, name) for name in own], rows)
    return f"INSERT INTO {quoted(model._meta.db_table)} ({columns}) SELECT {taken} FROM {given}"  # noqa: S608


@lru_cache(maxsize=500)
def _update_sql(
    model: type[Model], names: Names, own: Names, *, rows: int, alike: Names = (), same: Texts = (), told: Names = ()
) -> str:
    """Sets `alike` and `names` where `own` and `same` are met: of the rows of a relation whose columns are `names` and
    `own`; or, where there is none, of one whose values are parameters in their place.
    """
    given = relation([cast(model, name) for name in (*names, *own)], rows) if rows else ""
    places = [f"given.column{n + 1}" if given else "%s" for n in range(len(names) + len(own))]
    sets = [*((name, "%s") for name in alike), *zip(names, places, strict=False)]
    met = [(name, f"= {place}") for name, place in zip(own, places[len(names) :], strict=True)]
    return update_sql(model, tuple(sets), (*met, *same), told, given)


@cache
def _others(model: type[Model], own: Names) -> Names:
    """The attributes of a row that the database does not make, but for its own."""
    return tuple(f.attname for f in model._meta.concrete_fields if not f.primary_key and f.attname not in own)
