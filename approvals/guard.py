"""Decisions cannot be changed or removed by anybody, not even by SQL: triggers on PostgreSQL and SQLite.

Installed after every migrate, because SQLite drops them when it rebuilds a table; a system check watches them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning
from django.db import connection

from approvals.models import Decision

_MESSAGE = "decisions are append-only"
_NAMES = ("decision_no_update", "decision_no_delete")


def _table() -> str:
    return connection.ops.quote_name(Decision._meta.db_table)


def _install_sqlite() -> list[str]:
    return [
        f"CREATE TRIGGER IF NOT EXISTS decision_no_{act.lower()} BEFORE {act} ON {_table()} "
        f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
        for act in ("UPDATE", "DELETE")
    ]


def _install_postgresql() -> list[str]:
    return [
        "CREATE OR REPLACE FUNCTION countersign_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_MESSAGE}'; END $$",
        f"CREATE OR REPLACE TRIGGER decision_no_update BEFORE UPDATE ON {_table()} "
        "FOR EACH STATEMENT EXECUTE FUNCTION countersign_append_only()",
        f"CREATE OR REPLACE TRIGGER decision_no_delete BEFORE DELETE OR TRUNCATE ON {_table()} "
        "FOR EACH STATEMENT EXECUTE FUNCTION countersign_append_only()",
    ]


def install(**_: Any) -> None:
    """Put the triggers in place. Idempotent; connected to post_migrate."""
    if Decision._meta.db_table not in connection.introspection.table_names():
        return
    statements = {"sqlite": _install_sqlite, "postgresql": _install_postgresql}.get(connection.vendor, list)()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def remove() -> None:
    """Take the triggers away. Only for emptying a test database."""
    suffix = f" ON {_table()}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name in _NAMES:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{suffix}")


@contextmanager
def lifted() -> Iterator[None]:
    """The triggers away while the block runs. Only for emptying a test database."""
    remove()
    try:
        yield
    finally:
        install()


def missing() -> list[str]:
    """The names of triggers that should be there and are not."""
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
    }.get(connection.vendor)
    if query is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query)
        there = {row[0] for row in cursor.fetchall()}
    return [name for name in _NAMES if name not in there]


def check_triggers(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """approvals.W001: a trigger that keeps decisions append-only is missing. Runs with `check --database default`, and
    at migrate.
    """
    if not databases or "default" not in databases:
        return []
    if Decision._meta.db_table not in connection.introspection.table_names():
        return []
    return [
        Warning(
            f"trigger {name} is missing: decisions could be changed", hint="run manage.py migrate", id="approvals.W001"
        )
        for name in missing()
    ]
