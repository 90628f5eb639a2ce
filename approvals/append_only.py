"""Triggers on PostgreSQL and SQLite that let nobody change or remove decisions, not
even by SQL.

They allow two changes: payload columns that are encrypted again, while every other
column stays as it was; and payload columns and the seal of a decision that is being
erased, whose row of an erasure record must exist, with the new seal. They are installed
after every migrate, because SQLite drops them when it rebuilds a table; a system check
watches them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connection

from approvals.models import Decision
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.models import ErasedRow

_MESSAGE = "decisions are append-only"
_SQLITE_BYTES = "x'{0}'"
_POSTGRESQL_BYTES = "'\\x{0}'::bytea"
_NAMES = ("decision_no_update", "decision_no_delete")


def _table() -> str:
    return connection.ops.quote_name(Decision._meta.db_table)


def _forbidden(is_not: str, locked: str) -> str:
    """Return SQL that is true of every change but one: payload columns that are
    encrypted again, from encrypted bytes to encrypted bytes. Seals and hashes are over
    the plain bytes, so such a change cannot hide a change of the content.
    """
    payloads = [_quoted(name) for name in Decision.PAYLOADS]
    others = [_quoted(name) for name in _columns_but(Decision.PAYLOADS)]
    forbidden = [f"OLD.{name} {is_not} NEW.{name}" for name in others]
    for name in payloads:
        old_is_plain = f"substr(OLD.{name}, 1, 1) {is_not} {locked}"
        new_is_plain = f"substr(NEW.{name}, 1, 1) {is_not} {locked}"
        forbidden.append(
            f"(OLD.{name} {is_not} NEW.{name} AND ({old_is_plain} OR {new_is_plain}))"
        )
    # An update that changes nothing encrypts nothing again either, so it is refused
    # too.
    no_change = " AND ".join(f"NOT OLD.{name} {is_not} NEW.{name}" for name in payloads)
    return f"{' OR '.join(forbidden)} OR ({no_change})"


def _columns_but(fields: Collection[str]) -> list[str]:
    """Return the columns of decisions except those of these fields, as far as the table
    has them: during a migration back to an older version it may have fewer.
    """
    with connection.cursor() as cursor:
        # Django's introspection would parse the table's whole declaration on SQLite,
        # for its collations.
        cursor.execute(f"SELECT * FROM {_table()} LIMIT 0")  # noqa: S608
        existing = {column[0] for column in cursor.description}
    names = [
        str(field.column)
        for field in Decision._meta.concrete_fields
        if field.name not in fields
    ]
    return [name for name in names if name in existing]


def _quoted(name: str | None) -> str:
    return connection.ops.quote_name(str(name))


def _not_erased(is_not: str, key: str) -> str:
    """Return SQL that is true of every change but one that an erasure record has:
    payload columns and the seal.
    """
    others = _columns_but({*Decision.PAYLOADS, "seal", "seal_key"})
    changed = " OR ".join(
        f"OLD.{name} {is_not} NEW.{name}" for name in map(_quoted, others)
    )
    erased_row = (
        f"SELECT 1 FROM {_quoted(ErasedRow._meta.db_table)} e "  # noqa: S608
        f"WHERE e.{_quoted('table')} = '{Decision._meta.db_table}' "
        f"AND e.{_quoted('row')} = {key} "
        "AND e.new_seal = NEW.seal AND e.old_seal = OLD.seal"
    )
    return f"({changed} OR NOT EXISTS ({erased_row}))"


# A UUID as SQLite stores it, in the form that an erasure record has.
_SQLITE_KEY = (
    "lower("
    + " || '-' || ".join(
        f"substr(NEW.id, {first}, {length})"
        for first, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    + ")"
)


def _install_sqlite() -> list[str]:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
    forbidden = _forbidden("IS NOT", _SQLITE_BYTES.format(ENCRYPTED.hex()))
    not_erased = _not_erased("IS NOT", _SQLITE_KEY)
    return [
        # Rebuilt each time, because its text names the columns, which a migration may
        # change; that of the other trigger never differs.
        "DROP TRIGGER IF EXISTS decision_no_update",
        f"CREATE TRIGGER decision_no_update BEFORE UPDATE ON {_table()} "
        f"WHEN ({forbidden}) AND {not_erased} {refuse}",
        "CREATE TRIGGER IF NOT EXISTS decision_no_delete "
        f"BEFORE DELETE ON {_table()} {refuse}",
    ]


def _install_postgresql() -> list[str]:
    forbidden = _forbidden(
        "IS DISTINCT FROM", _POSTGRESQL_BYTES.format(ENCRYPTED.hex())
    )
    not_erased = _not_erased("IS DISTINCT FROM", "NEW.id::text")
    return [
        # PostgreSQL allows no subquery in WHEN, so the function looks for the erasure
        # record.
        "CREATE OR REPLACE FUNCTION countersign_append_only() "
        "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' THEN IF NOT {not_erased} THEN RETURN NEW; "
        f"END IF; END IF; RAISE EXCEPTION '{_MESSAGE}'; END $$",
        "CREATE OR REPLACE TRIGGER decision_no_update "
        f"BEFORE UPDATE ON {_table()} FOR EACH ROW "
        f"WHEN ({forbidden}) "
        "EXECUTE FUNCTION countersign_append_only()",
        "CREATE OR REPLACE TRIGGER decision_no_delete "
        # For each statement, because TRUNCATE fires no trigger for single rows.
        f"BEFORE DELETE OR TRUNCATE ON {_table()} "
        "FOR EACH STATEMENT EXECUTE FUNCTION countersign_append_only()",
    ]


def install_triggers(**_: Any) -> None:
    """Install the triggers, even over existing ones. Connected to post_migrate."""
    # The signal comes after other plans too, such as one that removes these tables.
    if Decision._meta.db_table not in connection.introspection.table_names():
        return
    statements_by_vendor = {
        "sqlite": _install_sqlite,
        "postgresql": _install_postgresql,
    }
    statements = statements_by_vendor.get(connection.vendor, list)
    with connection.cursor() as cursor:
        for statement in statements():
            cursor.execute(statement)


def make_room(plan: Sequence[tuple[Any, bool]] = (), **_: Any) -> None:
    """Drop the trigger that would block a plan of migrations: SQLite rebuilds no table
    while a trigger mentions a table that does not exist. `install_triggers` follows
    when they are done. For plans that leave the tables of `checkpoints` alone nothing
    is dropped, so that a plan that is refused leaves the trigger.
    """
    if connection.vendor != "sqlite":
        return
    app = ErasedRow._meta.app_label
    if any(migration.app_label == app for migration, _backwards in plan):
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER IF EXISTS decision_no_update")


def remove_triggers() -> None:
    """Drop the triggers. Only as `triggers_lifted`."""
    suffix = f" ON {_table()}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name in _NAMES:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{suffix}")


@contextmanager
def triggers_lifted() -> Iterator[None]:
    """Drop the triggers while the block runs: for emptying a test database, and for
    sealing decisions of an older release again, in a transaction that brings them back
    if it fails.
    """
    remove_triggers()
    try:
        yield
    finally:
        install_triggers()


def missing_triggers() -> list[str]:
    """Return the names of missing triggers."""
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
    }.get(connection.vendor)
    if query is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query)
        existing = {row[0] for row in cursor.fetchall()}
    return [name for name in _NAMES if name not in existing]


def check_triggers(
    app_configs: Any, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Return approvals.W001 for each missing trigger that keeps decisions append-only.
    Runs at migrate, and in `check --database`.
    """
    if not databases or "default" not in databases:
        return []
    if Decision._meta.db_table not in connection.introspection.table_names():
        return []
    hint = "run manage.py migrate"
    return [
        Warning(
            f"trigger {name} is missing: decisions could be changed",
            hint=hint,
            id="approvals.W001",
        )
        for name in missing_triggers()
    ]
