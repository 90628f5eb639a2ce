"""Queries that count what is in large tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, Func

_GROUPED_IN_MEMORY = {"enable_sort": "off"}
_IN_ORDER = {"enable_bitmapscan": "off"}
_UNSORTED = {"enable_bitmapscan": "off", "enable_sort": "off"}
_LOOKED_UP = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Only a scan of a whole table is shared among processes.
    "max_parallel_workers_per_gather": "0",
}


class LookedUp(Exists):
    """An EXISTS that the database looks up by index for each row. Without the OFFSET
    PostgreSQL may answer it from a list of all rows of the table, which costs the more
    the more rows others have.
    """

    template = "EXISTS(%(subquery)s OFFSET 0)"


class Unindexed(Func):
    """A column of a condition by which SQLite looks up no rows, so that it uses the
    index of another. It gathers no statistics by itself, and takes the index that has
    most of the columns. On PostgreSQL it is the column itself.
    """

    template = "%(expressions)s"
    arity = 1

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


@contextmanager
def few_groups() -> Iterator[None]:
    """Open a block for one query that puts millions of rows into few groups. PostgreSQL
    cannot know how few they are, and would sort all rows on the disk; here it hashes.
    More memory would not help: a larger table of hashes leaves the caches of the
    processor. The block is rolled back, the setting with it, so nothing may be written
    in it. Does nothing on SQLite.
    """
    with _planned(_GROUPED_IN_MEMORY):
        yield


@contextmanager
def few_rows() -> Iterator[None]:
    """Open a block for queries about few rows of large tables: PostgreSQL reads none of
    the tables whole to spare itself the look-ups. Like `few_groups` it is rolled back.
    """
    with _planned(_LOOKED_UP):
        yield


@contextmanager
def first_rows() -> Iterator[None]:
    """Open a block for queries that read the first rows of an index: PostgreSQL, which
    expects few rows of a kind, does not gather all of them first. Like `few_groups` it
    is rolled back.
    """
    with _planned(_IN_ORDER):
        yield


@contextmanager
def index_order() -> Iterator[None]:
    """Open a block for a query in the order of an index, of which it wants the first
    rows: PostgreSQL, which expects few rows, does not sort all of them. Only rows that
    the index has at one place are sorted. Like `few_groups` it is rolled back.
    """
    with _planned(_UNSORTED):
        yield


@contextmanager
def _planned(settings: Mapping[str, str]) -> Iterator[None]:
    """Open a block in which PostgreSQL plans by these settings."""
    if connection.vendor != "postgresql":
        yield
        return
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    params = []
    for name, value in settings.items():
        params += [name, value]
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {calls}", params)
        yield
        transaction.set_rollback(True)
