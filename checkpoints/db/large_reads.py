"""Queries that read whole tables to count what is in them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

_SETTINGS = {"work_mem": "64MB", "enable_sort": "off"}
"""A group of some words is found by hashing, and a table of runs is hashed in one piece. The planner cannot know how
few groups there are, and would sort all rows on the disk.
"""


@contextmanager
def room_for_groups() -> Iterator[None]:
    """A block for one query that puts millions of rows into few groups. It is rolled back, the settings with it, so
    nothing may be written in it. Does nothing on SQLite.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            said = ", ".join(["set_config(%s, %s, true)"] * len(_SETTINGS))
            cursor.execute(f"SELECT {said}", [word for pair in _SETTINGS.items() for word in pair])
        yield
        transaction.set_rollback(True)
