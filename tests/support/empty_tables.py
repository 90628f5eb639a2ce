"""Empties the test database after a test with real transactions: what Django's flush
does, in a fraction of its time.

Django's flush truncates every table and then makes each content type, permission and
group anew. Here only tables with rows are emptied, and what the migrations left is put
back only where a test changed it. Where a test changed the schema itself (a trigger, an
index), and the first time in a process, Django's own flush runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from approvals import append_only
from approvals.models import Decision

Rows = list[tuple[Any, ...]]


class EmptyTables:
    """The database as Django's flush leaves it, and the way back to it. `flush` is
    Django's own, for one test case.
    """

    def __init__(self, flush: Callable[[Any], None]) -> None:
        self._flush = flush
        self._schema: Rows = []
        self._tables: list[str] = []
        self._kept: dict[str, Rows] = {}

    def restore(self, case: Any) -> None:
        """Leave the rows that the migrations left, and no others."""
        if self._schema and self._schema == _schema():
            self._empty()
        else:
            with append_only.triggers_lifted():
                self._flush(case)
            self._remember()

    def _remember(self) -> None:
        self._tables = sorted(
            connection.introspection.django_table_names(
                only_existing=True, include_views=False
            )
        )
        self._kept = {table: _rows(table) for table in _filled(self._tables)}
        self._schema = _schema()

    def _empty(self) -> None:
        with (
            connection.constraint_checks_disabled(),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            if connection.vendor == "postgresql":
                # Like a TRUNCATE: wait for whoever is still writing, whatever table it
                # is.
                names = ", ".join(map(_quoted, self._tables))
                cursor.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
                cursor.execute("SET LOCAL session_replication_role = replica")
            filled = _filled(self._tables)
            with _removable(filled):
                for table in filled:
                    if table not in self._kept:
                        cursor.execute(f"DELETE FROM {_quoted(table)}")
            for table, rows in self._kept.items():
                if _rows(table) != rows:
                    _replace(table, rows)


SCHEMA = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master ORDER BY type, name",
    "postgresql": "SELECT relkind::text, relname::text, relnatts::text FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace"
    " UNION ALL SELECT tgenabled::text, tgname::text, pg_get_triggerdef(oid) FROM"
    " pg_trigger WHERE NOT tgisinternal"
    " ORDER BY 1, 2, 3",
}
"""Each table, index and trigger as it is defined: one that was dropped and made again
is the same.
"""


def _schema() -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(SCHEMA[connection.vendor])
        return list(cursor.fetchall())


@contextmanager
def _removable(tables: list[str]) -> Iterator[None]:
    """SQLite has no switch for triggers: those on decisions go away while there are
    decisions to delete.
    """
    if connection.vendor == "sqlite" and Decision._meta.db_table in tables:
        with append_only.triggers_lifted():
            yield
    else:
        yield


def _filled(tables: list[str]) -> list[str]:
    """Return those of the tables that have a row."""
    asked = " UNION ALL ".join(
        f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {_quoted(name)})"
        for name in tables
    )
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return [name for (name,) in cursor.fetchall()]


def _rows(table: str) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {_quoted(table)} ORDER BY 1")
        return list(cursor.fetchall())


def _replace(table: str, rows: Rows) -> None:
    places = ", ".join(["%s"] * len(rows[0]))
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {_quoted(table)}")
        cursor.executemany(f"INSERT INTO {_quoted(table)} VALUES ({places})", rows)


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
