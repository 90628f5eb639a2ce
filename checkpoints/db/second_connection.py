"""A second connection, for writes that must be committed now while the transaction of
the first is not ours to end.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from checkpoints.db.limits import LOCK_SECONDS


@contextmanager
def open_second_connection() -> Iterator[BaseDatabaseWrapper]:
    """Open another connection to the default database, for PostgreSQL; every statement
    on it commits by itself.

    It waits for locks no longer than `LOCK_SECONDS`, then raises `OperationalError`:
    the transaction beside it may be what holds them, and would wait for itself.
    """
    second = connections[DEFAULT_DB_ALIAS].copy()
    try:
        with second.cursor() as cursor:
            # For the session: set for a transaction, it would end with this statement.
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, false)",
                [f"{round(LOCK_SECONDS * 1000)}ms"],
            )
        yield second
    finally:
        second.close()
