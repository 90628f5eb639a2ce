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


def each_source(sources: Sequence[str]) -> RawSQL:
    """Return the table `source`, with a row and its `value` for each source, as it
    stands in FROM. Reads nothing.
    """
    if connection.vendor == "sqlite":
        return RawSQL("json_each(%s) AS source", (json.dumps(list(sources)),))
    return RawSQL("unnest(%s::text[]) AS source(value)", (list(sources),))


def first_of_each(
    sources: Sequence[str],
    rows: "QuerySet[Any, Any]",
    column: str,
    first: int | None,
) -> RawSQL:
    """Return a subquery for `__in`: the values of a column in the first rows of each
    source, all of them where `first` is None. Reads nothing.

    `rows` is ordered, and has `SOURCE` in a condition. Several sources may have the
    same value.
    """
    table = each_source(sources)
    named = rows.values(value=F(column))[:first]
    query, params = named.query.sql_with_params()
    # A lateral subquery may read the tables before it.
    first_rows = f"CROSS JOIN LATERAL ({query}) AS first_row"
    if connection.vendor == "sqlite":
        # So may a function in FROM, which a subquery may not there.
        first_rows = (
            f"CROSS JOIN json_each((SELECT json_group_array(cut.value) FROM ({query}) "  # noqa: S608
            "AS cut)) AS first_row"
        )
    text = f"SELECT first_row.value FROM {table.sql} {first_rows}"  # noqa: S608
    return RawSQL(text, (*table.params, *params))  # noqa: S611


def first_of_all(
    sources: RawSQL,
    rows: "QuerySet[Any, Any]",
    column: str,
    first: int | None,
) -> RawSQL:
    """Return a subquery for `__in`: the values of a column in the first rows of all
    sources together, of which each is read as by `first_of_each`. Reads nothing.

    `sources` is a table `source` with a row and its `value` for each source. `rows` is
    ordered by its own columns, and has `SOURCE` in a condition.
    """
    order = [str(name) for name in rows.query.order_by]
    columns = {"value": F(column)}
    for place, name in enumerate(order):
        columns[f"place_{place}"] = F(name.removeprefix("-"))
    query, params = rows.values(**columns)[:first].query.sql_with_params()
    first_rows, read = _first_rows(query, list(columns))

    terms = []
    for place, name in enumerate(order):
        direction = "DESC" if name.startswith("-") else "ASC"
        terms.append(f"{read[f'place_{place}']} {direction}")
    text = (
        f"SELECT {read['value']} FROM {sources.sql} {first_rows} "  # noqa: S608
        f"ORDER BY {', '.join(terms)}"
    )
    if first is not None:
        text += f" LIMIT {int(first)}"
    return RawSQL(text, (*sources.params, *params))  # noqa: S611


def _first_rows(query: str, columns: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the table `first_row` of a query that is cut, as it stands in FROM behind
    the sources, and how each of its columns is read.
    """
    if connection.vendor != "sqlite":
        # A lateral subquery may read the tables before it.
        read = {name: f"first_row.{name}" for name in columns}
        return f"CROSS JOIN LATERAL ({query}) AS first_row", read

    # So may a function in FROM, which a subquery may not there.
    cut = ", ".join(f"cut.{name}" for name in columns)
    rows = f"SELECT json_group_array(json_array({cut})) FROM ({query}) AS cut"  # noqa: S608
    read = {}
    for number, name in enumerate(columns):
        read[name] = f"json_extract(first_row.value, '$[{number}]')"
    return f"CROSS JOIN json_each(({rows})) AS first_row", read


def all_of(
    values: Sequence[RawSQL], *, also: "QuerySet[Any, Any] | None" = None
) -> RawSQL:
    """Return a subquery for `__in`: the values of several subqueries, and those of a
    query of one column. Reads nothing.
    """
    parts = [*values]
    if also is not None:
        parts.insert(0, RawSQL(*also.query.sql_with_params()))  # noqa: S611
    texts = []
    all_params: list[Any] = []
    for part in parts:
        # SQLite takes no cut query as a part of another, but one from which it selects.
        texts.append(f"SELECT * FROM ({part.sql}) AS part")  # noqa: S608
        all_params += part.params
    return RawSQL(" UNION ALL ".join(texts), all_params)  # noqa: S611


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
