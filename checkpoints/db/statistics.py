"""The statistics of all tables, by which the database plans its queries."""

from django.db import connection

SAMPLE = 1000
"""The rows of an index after which SQLite goes on to the next one."""


def gather() -> None:
    """Gather them now. PostgreSQL does so by itself after a while, SQLite never."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def gather_unless_automatic() -> bool:
    """Gather them from `SAMPLE` rows of each index, where the database never does so by
    itself: on SQLite. Returns whether it did. Connections that are open already plan by
    those that they have read.
    """
    if connection.vendor != "sqlite":
        return False
    with connection.cursor() as cursor:
        # PRAGMA optimize would not do: before SQLite 3.46 it leaves out whatever this
        # connection has not queried, and pages are read by others.
        cursor.execute(f"PRAGMA analysis_limit = {SAMPLE}")
        try:
            cursor.execute("ANALYZE")
        finally:
            cursor.execute("PRAGMA analysis_limit = 0")
    return True
