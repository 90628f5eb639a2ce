"""The database connections of this process: the role that they report, and whether they
outlive their work.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

KEPT_SECONDS = 60
"""Seconds that a worker keeps a connection if the settings name no age: a slice must
not have to open one.
"""
_LABEL = "countersign "
_COMMAND_LINES = frozenset({"manage.py", "django-admin", "django-admin.py"})
_ROLES = {
    "worker": "worker",
    "qcluster": "worker",
    "runserver": "web",
    "testserver": "web",
}
"""Management command -> role of its process; for any other command it is "command"."""


_HANDLER: Any = connections
_IN_THREAD: Any = _HANDLER._connections._storage
"""The `threading.local` whose attributes are a thread's connections, by alias. To take
them out and put them back by Django's own methods passes through twenty functions, at
every superstep.
"""


def role_of_process() -> str:
    """Return "web", "worker" or "command", by the words that this process was started
    with.
    """
    program = Path(sys.argv[0])
    # `python -m django` is started as a file of Django's own.
    runs_command = program.name in _COMMAND_LINES or program.parts[-2:] == (
        "django",
        "__main__.py",
    )
    if not runs_command:
        return "web"
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    return _ROLES.get(command, "command")


def label_connections(role: str) -> None:
    """Name this process "countersign <role>" in PostgreSQL's `pg_stat_activity`.

    A name that the project chose, in its settings or by PGAPPNAME, stays.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql" or "PGAPPNAME" in os.environ:
        return
    options: dict[str, Any] = database.settings_dict["OPTIONS"]
    options.setdefault("application_name", _LABEL + role)


def taken_from_thread() -> dict[str, BaseDatabaseWrapper]:
    """Take the database connections of this thread, which runs no event loop, out of
    Django's keeping, and return them by alias. What runs here next opens its own.
    """
    in_thread = vars(_IN_THREAD)
    taken: dict[str, BaseDatabaseWrapper] = {}
    for alias in connections.settings:
        if alias in in_thread:
            taken[alias] = in_thread.pop(alias)
    return taken


def give_to_thread(taken: Mapping[str, BaseDatabaseWrapper]) -> None:
    """Put back what `taken_from_thread` took, in the same thread."""
    vars(_IN_THREAD).update(taken)


def keep_open() -> None:
    """Keep connections open from slice to slice, in this process and in those forked
    from it. Workers call it before they fork.

    A pool in the settings is left out: its sockets would be shared by the processes
    that are forked.
    """
    database = connections[DEFAULT_DB_ALIAS]
    # What was opened before, for the checks of a command, goes back to where it came
    # from.
    database.close()
    close_pool = getattr(database, "close_pool", None)
    if close_pool is not None:
        close_pool()
    database.settings_dict["OPTIONS"].pop("pool", None)
    if database.settings_dict["CONN_MAX_AGE"] == 0:
        database.settings_dict["CONN_MAX_AGE"] = KEPT_SECONDS
