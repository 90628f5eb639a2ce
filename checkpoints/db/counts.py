"""Numbers of rows for people, who need no exact number where there are very many."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet

MOST_COUNTED = 1_000
"""Rows are counted up to this number; of more people are shown "1,000+"."""


def count_up_to_most(rows: "QuerySet[Any, Any]") -> int:
    """Return the number of rows, at most one more than `MOST_COUNTED`."""
    counted = rows.order_by()[: MOST_COUNTED + 1]
    return counted.count()


def count_each(
    named_rows: Mapping[str, "QuerySet[Any]"], *, most: int
) -> dict[str, int]:
    """Return the number of rows of each of these queries, which may be cut already, at
    most `most`. One query.
    """
    names = []
    columns = []
    params: list[Any] = []
    for name, rows in named_rows.items():
        # The order decides which rows are left in a query that is cut already.
        ordered = rows if rows.query.is_sliced else rows.order_by()
        first = ordered.values("pk")[:most]
        try:
            text, params_of_rows = first.query.sql_with_params()
        except EmptyResultSet:
            # Django sees by itself that no row can match.
            continue
        names.append(name)
        # The text is Django's own, and each value a parameter.
        columns.append(f"(SELECT COUNT(*) FROM ({text}) AS counted)")  # noqa: S608
        params += params_of_rows

    counts = dict.fromkeys(named_rows, 0)
    if names:
        [numbers] = select_rows(f"SELECT {', '.join(columns)}", params)
        counts |= zip(names, numbers, strict=True)
    return counts


def count_groups(rows: "QuerySet[Any]", *columns: str) -> list[tuple[Any, ...]]:
    """Return the values of these columns and how many rows of a query, which may be cut
    already, have them. One query.
    """
    try:
        text, params = rows.values(*columns).query.sql_with_params()
    except EmptyResultSet:
        # Django sees by itself that no row can match.
        return []
    names = ", ".join(connection.ops.quote_name(column) for column in columns)
    # The text is Django's own, and each value a parameter.
    return select_rows(
        f"SELECT {names}, COUNT(*) FROM ({text}) AS counted GROUP BY {names}",  # noqa: S608
        params,
    )


def select_rows(
    text: str, params: Sequence[Any] | Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a query in SQL. One query."""
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        return list(cursor.fetchall())


def in_words(number: int) -> str:
    """Return a number that was counted so, with separators."""
    if number > MOST_COUNTED:
        return f"{MOST_COUNTED:,}+"
    return f"{number:,}"
