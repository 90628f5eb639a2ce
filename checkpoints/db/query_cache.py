"""Queries of the ORM whose text is kept, by shape, for they cost more to compile than to do. The journal, leases and
jobs call it. It knows no table.
"""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet
from django.utils import timezone

from checkpoints.db.clock import STANDS_FOR_NOW
from checkpoints.db.rows import Row, fetch_rows, to_driver

Query = Callable[..., "QuerySet[Any, Any]"]
"""Builds a query from values. It is called once for its text, with values that stand for all others: what it builds
must not depend on them. It says `kept_now()` where it means the moment of the statement.
"""


def select(model: type[Row], query: Query, *values: UUID | int | str) -> list[Row]:
    """The rows of `query(*values)`, a query for all columns of the model."""
    names = [field.attname for field in model._meta.concrete_fields]
    return fetch_rows(model, names, *compiled(query, *values))


def select_values(query: Query, *values: UUID | int | str) -> list[tuple[Any, ...]]:
    """What `query(*values)`, a query for some columns, finds, as the database gives it; for numbers and texts."""
    try:
        text, params = compiled(query, *values)
    except EmptyResultSet:
        return []
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(text, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def exists(query: Query, *values: UUID | int | str) -> bool:
    """Whether `query(*values)` has a row."""
    try:
        text, params = compiled(query, *values)
    except EmptyResultSet:
        return False
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchone() is not None


def compiled(query: Query, *values: UUID | int | str) -> tuple[str, list[Any]]:
    """The text and the parameters of `query(*values)`. Raises `EmptyResultSet` where it can have no row."""
    vendor = connections[DEFAULT_DB_ALIAS].vendor
    text, places = _text(query, tuple(map(type, values)), vendor)
    given = [to_driver(value, vendor) for value in (*values, timezone.now())]
    return text, [given[at] if at is not None else always for at, always in places]


@lru_cache(maxsize=500)
def _text(query: Query, kinds: tuple[type, ...], vendor: str) -> tuple[str, list[tuple[int | None, Any]]]:
    """The text, and of each parameter which value it is (behind the last: the moment), else what it always is."""
    stands = [_STANDS[kind](n) for n, kind in enumerate(kinds)]
    at = {to_driver(value, vendor): n for n, value in enumerate([*stands, STANDS_FOR_NOW])}
    text, params = query(*stands).query.sql_with_params()
    # Words of ours stand in the text: a plan made for whatever a parameter may be could not use an index over some
    # statuses only, and would read all rows that were ever queued.
    text = text.replace("%%", "%%%%") % tuple(f"'{one}'" if isinstance(one, Enum) else "%s" for one in params)
    return text, [(at.get(one), one) for one in params if not isinstance(one, Enum)]


_STANDS: dict[type, Callable[[int], Any]] = {
    UUID: lambda n: UUID(int=2**128 - 1 - n),
    int: lambda n: 2_000_000_000 + n,
    str: lambda n: f"stands for value {n}",
}
"""By kind, what stands for the n-th value: in range, and nobody's own."""
