"""The first rows of each of several sources, each in the order of an index, so that a
list that is merged from them costs as much as one page of each.
"""

import json
from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import F, IntegerField, QuerySet
from django.db.models.expressions import RawSQL

SOURCE = RawSQL("source.value", ())
"""Stands for the source in a condition of `rows`."""


def first_of_each(
    sources: Sequence[str],
    rows: "QuerySet[Any, Any]",
    column: str,
    first: int | None,
    *,
    also: "QuerySet[Any, Any] | None" = None,
) -> RawSQL:
    """Return a subquery for `__in`: the values of a column in the first rows of each
    source, all of them where `first` is None. Reads nothing.

    `rows` is ordered, and has `SOURCE` in a condition. Several sources may have the
    same value. `also` is a query of one column, whose values are added.
    """
    values = _first_values(sources, rows, column, first)
    if also is None:
        return values
    query, params = also.query.sql_with_params()
    # SQLite takes no cut query as a part of another, but one from which it selects.
    text = f"{values.sql} UNION ALL SELECT * FROM ({query}) AS added"  # noqa: S608
    return RawSQL(text, (*values.params, *params))  # noqa: S611


def _first_values(
    sources: Sequence[str],
    rows: "QuerySet[Any, Any]",
    column: str,
    first: int | None,
) -> RawSQL:
    named = rows.values(value=F(column))[:first]
    query, params = named.query.sql_with_params()
    if connection.vendor == "sqlite":
        # A function in FROM may read the tables before it, which a subquery may not.
        text = (
            "SELECT first_row.value FROM json_each(%s) AS source, json_each(("  # noqa: S608
            f"SELECT json_group_array(cut.value) FROM ({query}) AS cut"
            ")) AS first_row"
        )
        return RawSQL(text, (json.dumps(list(sources)), *params))  # noqa: S611
    text = (
        "SELECT first_row.value FROM unnest(%s::text[]) AS source(value) "  # noqa: S608
        f"CROSS JOIN LATERAL ({query}) AS first_row"
    )
    return RawSQL(text, (list(sources), *params))  # noqa: S611


def count_first(
    sources: Sequence[str],
    rows: "QuerySet[Any, Any]",
    column: str,
    *,
    most: int,
) -> int:
    """Return how many different values the rows of all sources have in a column, at
    most `most`. The arguments are those of `first_of_each`. One query.
    """
    number = number_of_first(sources, rows, column, most=most)
    with connection.cursor() as cursor:
        cursor.execute(number.sql, number.params)
        count: int = cursor.fetchone()[0]
    return count


def number_of_first(
    sources: Sequence[str],
    rows: "QuerySet[Any, Any]",
    column: str,
    *,
    most: int,
) -> RawSQL:
    """Return the number that `count_first` would count as an expression, for a column of
    another query. Reads nothing.
    """
    values = first_of_each(sources, rows, column, most)
    text = (
        "SELECT COUNT(*) FROM (SELECT DISTINCT first_value.value FROM "  # noqa: S608
        f"({values.sql}) AS first_value LIMIT %s) AS counted"
    )
    return RawSQL(  # noqa: S611
        text, (*values.params, most), output_field=IntegerField()
    )
