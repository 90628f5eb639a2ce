"""Replaces Django's cursors and its `atomic` for one transaction, and nothing of the connection itself.

The statements are given to the connection of the `sqlite3` module. When `send` returns, the transaction is over.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX
from django.db.transaction import TransactionManagementError


def send(now: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]) -> Callable[[], int]:
    """Do these statements in one transaction, those after the first only where it met a row; the first is an UPDATE
    that returns nothing. Raises what Django raises; the transaction is over all the same.
    """
    if now.connection.in_transaction:
        raise TransactionManagementError("somebody began a transaction on this connection and has not ended it")
    # The connection's own block rolls back before anybody can interrupt it.
    with now.wrap_database_errors, now.connection:
        # Whatever the settings say: the first statement writes.
        _do(now, "BEGIN IMMEDIATE")
        (first, values), *others = batch
        met: int = _do(now, _asked(first), values).rowcount
        if met > 0:
            for text, params in others:
                _do(now, _asked(text), params)
        _do(now, "COMMIT" if met > 0 else "ROLLBACK")
    return lambda: met


def _do(now: BaseDatabaseWrapper, text: str, params: Sequence[Any] = ()) -> Any:
    return now.connection.execute(text, params)


@lru_cache(maxsize=500)
def _asked(text: str) -> str:
    """The statement with its placeholders as the driver knows them."""
    return FORMAT_QMARK_REGEX.sub("?", text).replace("%%", "%")
