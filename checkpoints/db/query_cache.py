"""Queries of the ORM whose text is kept, by shape, for they cost more to compile than
to execute. The journal, leases, jobs and time travel call it. It knows no
table.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeVar
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model, QuerySet
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from checkpoints.db.clock import STANDS_FOR_NOW
from checkpoints.db.rows import (
    Row,
    attributes_of,
    fetch_joined,
    fetch_rows,
    to_driver,
    to_driver_all,
)
from checkpoints.db.statements import field_to_driver, quoted, update_sql

Item = TypeVar("Item")
Query = Callable[..., "QuerySet[Any, Any]"]
"""Builds a query from values. It is called once for its text, with values that stand
for all others: the query must not depend on them. It uses `kept_now()` for the moment
of the statement.
"""


def select(
    model: type[Row],
    query: Query,
    *values: UUID | int | str,
    deferred: tuple[str, ...] = (),
) -> list[Row]:
    """Return the rows of `query(*values)`, a query for all columns of the model, except
    for those that it defers.
    """
    text, params = compiled(query, *values)
    return fetch_rows(model, attributes_of(model, deferred), text, params)


def select_locked(
    model: type[Row], query: Query, *values: UUID | int | str
) -> list[Row]:
    """Return the rows of `select`, for a query with `select_for_update`. Raises
    `TransactionManagementError` outside a transaction, where they would not stay
    locked.
    """
    database = connections[DEFAULT_DB_ALIAS]
    # The ORM checks it when it compiles, and a kept text is compiled once.
    if database.features.has_select_for_update and database.get_autocommit():
        raise TransactionManagementError("rows can only be locked in a transaction")
    return select(model, query, *values)


def lock_selected(queries: Sequence[Query], *values: UUID | int | str) -> None:
    """Keep the rows of `query(*values)` of each of these queries for primary keys from
    being changed or deleted until the transaction that is open ends, as
    `shared_locks.lock_rows` does: in the order of the queries, of which each sees the
    rows as they are when the first begins. One statement.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return
    parts = []
    counts = []
    params: list[Any] = []
    for number, query in enumerate(queries):
        text, own_params = compiled(query, *values)
        parts.append(f"locked_{number} AS ({text} FOR SHARE)")
        # A part is only executed if something reads it.
        counts.append(f"SELECT count(*) FROM locked_{number}")  # noqa: S608
        params += own_params
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {', '.join(parts)} {' UNION ALL '.join(counts)}", params)


def select_values_kept(
    query: Query, *values: UUID | int | str
) -> list[tuple[Any, ...]]:
    """Return the records of `select_values`, and keep their rows from being changed or
    deleted until the transaction that is open ends, as `lock_selected` does.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    text, params = compiled(query, *values)
    if connection.vendor == "postgresql":
        text = f"{text} FOR SHARE"
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        records: list[tuple[Any, ...]] = cursor.fetchall()
    return records


def update_selected(
    model: type[Model],
    query: Query,
    *values: UUID | int | str,
    columns: Mapping[str, Any],
) -> int:
    """Set these columns of the rows of `query(*values)`, a query for primary keys, and
    return their number.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    try:
        text, params = compiled(query, *values)
    except EmptyResultSet:
        return 0
    sets = tuple((name, "%s") for name in columns)
    of_columns = [
        field_to_driver(model, name, value, connection.vendor)
        for name, value in columns.items()
    ]
    key = str(model._meta.pk.name)
    update = update_sql(model, sets, ((key, f"IN ({text})"),))
    with connection.cursor() as cursor:
        cursor.execute(update, [*of_columns, *params])
        return int(cursor.rowcount)


def delete_selected(
    model: type[Model], query: Query, *values: UUID | int | str
) -> None:
    """Delete the rows of `query(*values)`, a query for primary keys, to which no other
    row refers.
    """
    text, params = compiled(query, *values)
    table = quoted(model._meta.db_table)
    key = quoted(model._meta.pk.column)
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE {key} IN ({text})", params)  # noqa: S608


def select_joined(
    model: type[Row],
    names: Sequence[str],
    relation: str,
    related_names: Sequence[str],
    query: Query,
    *values: UUID | int | str,
) -> list[Row]:
    """Return the rows of `query(*values)`, each with the row to which its foreign key
    `relation` refers. The query lists `joined_columns`; attributes that it does not
    list are read when they are used.
    """
    text, params = compiled(query, *values)
    return fetch_joined(model, names, relation, related_names, text, params)


def joined_columns(
    names: Sequence[str], relation: str, related_names: Sequence[str]
) -> list[str]:
    """Return the columns that a query for `select_joined` lists, for `values_list`."""
    return [*names, *(f"{relation}__{name}" for name in related_names)]


def padded(values: Collection[Item]) -> list[Item]:
    """Return these values, or what has some each, the last of them so often that there
    are few lengths, for a list of a query: its text is kept for each length. Returns no
    values for none.
    """
    items = list(values)
    length = 1
    while length < len(items):
        length *= 2
    return items + items[-1:] * (length - len(items))


def pairs_in(values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the values of a query two by two: what `padded` had of pairs."""
    return zip(values[::2], values[1::2], strict=True)


def refresh(row: Model) -> None:
    """Read a row again, as `refresh_from_db` does. Raises `DoesNotExist`."""
    model = type(row)
    rows = select(model, _query_by_key(model), row.pk)
    if not rows:
        raise model.DoesNotExist  # type: ignore[attr-defined]
    # Its state comes with it, without related rows that were read before.
    row.__dict__.update(rows[0].__dict__)


@cache
def _query_by_key(model: type[Model]) -> Query:
    def query(key: UUID) -> "QuerySet[Any]":
        return model._base_manager.filter(pk=key).order_by()

    return query


def select_values(query: Query, *values: UUID | int | str) -> list[tuple[Any, ...]]:
    """Return the records of `query(*values)`, a query for some columns, as the driver
    returns them; for numbers and texts.
    """
    try:
        text, params = compiled(query, *values)
    except EmptyResultSet:
        return []
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(text, params)
        records: list[tuple[Any, ...]] = cursor.fetchall()
    return records


def exists(query: Query, *values: UUID | int | str) -> bool:
    """Return whether `query(*values)` has a row."""
    try:
        text, params = compiled(query, *values)
    except EmptyResultSet:
        return False
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchone() is not None


def compiled(query: Query, *values: UUID | int | str) -> tuple[str, list[Any]]:
    """Return the text and the parameters of `query(*values)`. Raises `EmptyResultSet`
    if it can have no row.
    """
    vendor = connections[DEFAULT_DB_ALIAS].vendor
    kinds = tuple(map(type, values))
    # The key of a project's own accounts may be of any type.
    if not _PLACEHOLDERS.keys() >= {*kinds}:
        return _compiled_anew(query, values, vendor)
    text, places = _text(query, kinds, vendor)
    driver_values = to_driver_all((*values, timezone.now()), vendor)
    params = []
    for position, constant in places:
        if position is None:
            params.append(constant)
        else:
            params.append(driver_values[position])
    return text, params


def _compiled_anew(
    query: Query, values: Sequence[Any], vendor: str
) -> tuple[str, list[Any]]:
    """Return the text and the parameters of `query(*values)`, without keeping them."""
    stands_for_now, now = to_driver_all((STANDS_FOR_NOW, timezone.now()), vendor)
    text, params = query(*values).query.sql_with_params()
    return text, [now if param == stands_for_now else param for param in params]


@lru_cache(maxsize=500)
def _text(
    query: Query, kinds: tuple[type, ...], vendor: str
) -> tuple[str, list[tuple[int | None, Any]]]:
    """Return the text, and for each parameter the position of the value that it takes
    (after the last value: the moment), or None with the constant that it always is.
    """
    # The query is built with placeholder values, which are recognised afterwards.
    placeholders = placeholders_of(kinds)
    positions = {}
    for position, placeholder in enumerate([*placeholders, STANDS_FOR_NOW]):
        positions[to_driver(placeholder, vendor)] = position
    text, params = query(*placeholders).query.sql_with_params()

    # Our own constants are part of the text: a plan for any value of a parameter could
    # not use an index over some statuses only, and would read all rows that were ever
    # queued.
    texts = []
    places = []
    for param in params:
        if isinstance(param, Enum):
            texts.append(f"'{param}'")
        else:
            texts.append("%s")
            places.append((positions.get(param), param))
    # Formatted here and once more by the cursor, each of which halves a `%%`.
    return text.replace("%%", "%%%%") % tuple(texts), places


def placeholders_of(kinds: Sequence[type]) -> list[Any]:
    """Return values of these types, with which a query is built for its text."""
    return [_PLACEHOLDERS[kind](number) for number, kind in enumerate(kinds)]


def _uuid_placeholder(number: int) -> UUID:
    return UUID(int=2**128 - 1 - number)


def _int_placeholder(number: int) -> int:
    return 2_000_000_000 + number


def _text_placeholder(number: int) -> str:
    return f"stands for value {number}"


_PLACEHOLDERS: dict[type, Callable[[int], Any]] = {
    UUID: _uuid_placeholder,
    int: _int_placeholder,
    str: _text_placeholder,
}
"""By type, the placeholder for the n-th value: in range, and no real value."""
