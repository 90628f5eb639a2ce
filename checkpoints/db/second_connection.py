"""A connection beside the one whose transaction is not ours to end: what must be committed now is written there."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from checkpoints.db.limits import LOCK_SECONDS


@contextmanager
def open_second_connection() -> Iterator[BaseDatabaseWrapper]:
    """Another connection to the default database, for PostgreSQL; every statement on it commits by itself.

    It waits for locks no longer than `LOCK_SECONDS`, then raises `OperationalError`: the transaction beside it may be
    what holds them, and would wait for itself.
    """
    found = connections[DEFAULT_DB_ALIAS].copy()
    try:
        with found.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{round(LOCK_SECONDS * 1000)}ms"])
        yield found
    finally:
        found.close()
