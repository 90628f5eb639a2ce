"""Locks that keep rows as they are until a transaction ends, and that several
transactions may hold at once.
"""

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet


def lock_rows(rows: "QuerySet[Any]") -> None:
    """Keep these rows from being changed or deleted until the transaction that is open
    ends; a transaction that is doing so is waited for. One statement, none on SQLite,
    where a transaction that has written is the only writer.
    """
    _lock(rows, "FOR SHARE")


def lock_keys(rows: "QuerySet[Any]") -> None:
    """Keep these rows from being deleted, and from being locked by acts on them, until
    the open transaction ends. Updates go on, so a committing worker does not wait. One
    statement, none on SQLite as for `lock_rows`.
    """
    _lock(rows, "FOR KEY SHARE")


def _lock(rows: "QuerySet[Any]", strength: str) -> None:
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return
    try:
        text, params = rows.order_by("pk").values("pk").query.sql_with_params()
    except EmptyResultSet:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"{text} {strength}", params)
