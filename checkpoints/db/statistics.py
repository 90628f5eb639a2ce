"""The statistics of all tables, by which the database plans its queries."""

from django.db import connection


def gather() -> None:
    """Gather them now. PostgreSQL does so by itself after a while, SQLite never."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
