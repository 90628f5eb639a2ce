"""Deleted or overwritten values that are still in the file of the database."""

from django.db import OperationalError, connection


def wipe_free_pages() -> None:
    """Rewrite the file of an SQLite database without its free pages. Does nothing
    inside a transaction, nor on another database: a server keeps its files itself.
    Raises `OperationalError` if a reader keeps an older state of the database for
    longer than the timeout of locks: that state is then still in its log (-wal).
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        # VACUUM writes to the log: the file has its old pages until that is copied.
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, *_ = cursor.fetchone()
        if busy:
            raise OperationalError(
                "database is locked: somebody still reads what was deleted"
            )
