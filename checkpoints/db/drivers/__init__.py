"""Sending the transactions of every superstep past the cursors of Django, which take as
long as the database does. One module a database; each has `send`, and is imported only
where its database is in use.

Tools that watch statements by Django's means (`execute_wrapper`, its log of queries)
see them nevertheless: then they go the usual way.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from threading import get_ident
from typing import Any, Protocol, cast

from django.db.backends.base.base import BaseDatabaseWrapper

VENDORS = ("postgresql", "sqlite")


class Driver(Protocol):
    """The interface of each module here."""

    def send(
        self, connection: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]
    ) -> Callable[[], int]:
        """Execute these statements in one transaction, those after the first only if it
        matched a row. Returns a function that waits for the end and returns how many
        rows the first met. Raises what Django raises, now or then.
        """


@cache
def of(vendor: str) -> Driver | None:
    """Return the module for this database; None where statements go the usual way."""
    if vendor not in VENDORS:
        return None
    return cast(Driver, import_module(f"{__name__}.{vendor}"))


def is_free(connection: BaseDatabaseWrapper) -> bool:
    """Return whether statements may be sent: no transaction is open, and no tool
    watches. The connection is open afterwards. A health check that is due is made now:
    it goes past Django's cursors too, and would take a connection that is busy for a
    broken one. Raises `DatabaseError` for another thread's connection.
    """
    # Each of Django's checks is called only where it has something to look at: a
    # superstep that finds all in order enters none of them.
    state: Any = connection
    if state._thread_ident != get_ident():
        connection.validate_thread_sharing()
    if state.health_check_enabled and not state.health_check_done:
        connection.close_if_health_check_failed()
    if connection.execute_wrappers or connection.queries_logged:
        return False
    connection.ensure_connection()
    return bool(connection.autocommit)
