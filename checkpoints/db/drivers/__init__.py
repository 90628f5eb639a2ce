"""Transactions that are written at every superstep, past the cursors of Django, which take as long as the database
does. One module a database; each has `send`, and is imported only where its database is in use.

Whoever watches statements by Django's means (`execute_wrapper`, its log of queries) sees them nevertheless: then they
go the usual way.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from django.db.backends.base.base import BaseDatabaseWrapper

VENDORS = ("postgresql", "sqlite")


class Driver(Protocol):
    """What a module here offers."""

    def send(self, now: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]) -> Callable[[], int]:
        """Do these statements in one transaction, those after the first only where it met a row. Gives what waits for
        the end, and gives how many rows the first met. Raises what Django raises, now or then.
        """


@cache
def of(vendor: str) -> Driver | None:
    """The module for this database; None where statements go the usual way."""
    return cast(Driver, import_module(f"{__name__}.{vendor}")) if vendor in VENDORS else None


def is_free(now: BaseDatabaseWrapper) -> bool:
    """Whether statements may be sent: no transaction is open, and nobody watches. The connection is there afterwards. A
    check of it that is due is made now: it goes past Django's cursors too, and would take a connection that is busy for
    a broken one. Raises `DatabaseError` for another thread's connection.
    """
    now.validate_thread_sharing()
    now.close_if_health_check_failed()
    return not (now.execute_wrappers or now.queries_logged) and now.get_autocommit()
