"""Queries that read whole tables to count what is in them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def few_groups() -> Iterator[None]:
    """Open a block for one query that puts millions of rows into few groups. PostgreSQL
    cannot know how few they are, and would sort all rows on the disk; here it hashes.
    More memory would not help: a larger table of hashes leaves the caches of the
    processor. The block is rolled back, the setting with it, so nothing may be written
    in it. Does nothing on SQLite.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_sort', 'off', true)")
        yield
        transaction.set_rollback(True)
