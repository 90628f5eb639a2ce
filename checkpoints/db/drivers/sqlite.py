"""Replaces Django's cursors and its `atomic` for one transaction, and nothing of the
connection itself.

The statements are given to the connection of the `sqlite3` module. When `send` returns,
the transaction is over.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX
from django.db.transaction import TransactionManagementError


def send(
    connection: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]
) -> Callable[[], int]:
    """Execute these statements in one transaction, those after the first only if it
    matched a row; the first is an UPDATE that returns nothing. Raises what Django
    raises; the transaction is over all the same.
    """
    if connection.connection.in_transaction:
        raise TransactionManagementError(
            "somebody began a transaction on this connection and has not ended it"
        )
    # The connection's own block rolls back before any interrupt can come between.
    with connection.wrap_database_errors, connection.connection:
        # Whatever the settings say: the first statement writes.
        _do(connection, "BEGIN IMMEDIATE")
        (first, values), *others = batch
        cursor = _do(connection, _with_question_marks(first), values)
        row_count: int = cursor.rowcount
        if row_count > 0:
            for text, params in others:
                _do(connection, _with_question_marks(text), params)
        _do(connection, "COMMIT" if row_count > 0 else "ROLLBACK")
    return lambda: row_count


def _do(connection: BaseDatabaseWrapper, text: str, params: Sequence[Any] = ()) -> Any:
    return connection.connection.execute(text, params)


@lru_cache(maxsize=500)
def _with_question_marks(text: str) -> str:
    """Return the statement with the placeholders of the driver."""
    return FORMAT_QMARK_REGEX.sub("?", text).replace("%%", "%")
