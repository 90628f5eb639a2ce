"""The ascending ids that the database gives to rows."""

from django.db import connection
from django.db.models import Model

BEYOND_ALL = 2**62
"""SQLite gives the id after the highest one; after the last possible, any free one."""


def highest_id(model: type[Model]) -> int:
    """Return the highest id that the database itself can have given to a row of this
    table. On PostgreSQL two queries.
    """
    if connection.vendor != "postgresql":
        return BEYOND_ALL
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_serial_sequence(%s, 'id')", [model._meta.db_table]
        )
        (sequence,) = cursor.fetchone()
        # The name is the database's own.
        cursor.execute(f"SELECT last_value FROM {sequence}")  # noqa: S608
        (last,) = cursor.fetchone()
    return int(last)
