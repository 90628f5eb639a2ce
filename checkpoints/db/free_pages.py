"""What was deleted or overwritten, and still stands in the file of the database."""

from django.db import OperationalError, connection


def wipe_free_pages() -> None:
    """On SQLite, write the file of the database anew, without the pages that are free. Nothing inside a transaction,
    and nothing elsewhere: a server keeps its files itself. Raises `OperationalError` where somebody reads the database
    as it was for longer than the timeout of locks: what he reads then still stands in its log (-wal).
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, *_ = cursor.fetchone()
        if busy:
            raise OperationalError("database is locked: somebody still reads what was deleted")
