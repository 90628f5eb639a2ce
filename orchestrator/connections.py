"""The database connections of this process: the role that they report, and whether they
outlive their work.
"""

import os
import sys
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

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
    """Let PostgreSQL show this process as "countersign <role>" in `pg_stat_activity`.

    A name that the project chose, in its settings or by PGAPPNAME, stays.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql" or "PGAPPNAME" in os.environ:
        return
    options: dict[str, Any] = database.settings_dict["OPTIONS"]
    options.setdefault("application_name", _LABEL + role)


def keep_open() -> None:
    """Let connections outlive a slice, in this process and in those forked from it; for
    workers, before they fork.

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
