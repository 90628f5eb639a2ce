"""Decisions cannot be changed or removed by anybody, not even by SQL: triggers on PostgreSQL and SQLite.

They let payload columns pass that are encrypted anew, every other column as it was; and payload columns and the seal
of a decision that is being erased: its row of an erasure record must be there, with the seal that it gets. Installed
after every migrate, because SQLite drops them when it rebuilds a table; a system check watches them.
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
    """SQL that is true of every change but one: payload columns encrypted anew, from encrypted bytes to encrypted
    bytes. Seals and hashes are over the plain bytes, so what such a change does to the content shows.
    """
    payloads = [_quoted(name) for name in Decision.PAYLOADS]
    others = [_quoted(name) for name in _columns_but(Decision.PAYLOADS)]
    begins = f"substr({{0}}.{{1}}, 1, 1) {is_not} {locked}"
    broken = [
        f"(OLD.{name} {is_not} NEW.{name} AND ({begins.format('OLD', name)} OR {begins.format('NEW', name)}))"
        for name in payloads
    ]
    nothing = " AND ".join(f"NOT OLD.{name} {is_not} NEW.{name}" for name in payloads)
    changed = [f"OLD.{name} {is_not} NEW.{name}" for name in others]
    return f"{' OR '.join([*changed, *broken])} OR ({nothing})"


def _columns_but(fields: Collection[str]) -> list[str]:
    """The columns of decisions but those of these fields, as far as the table has them: on the way back to an older
    version it may have fewer.
    """
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, Decision._meta.db_table)
    there = {column.name for column in described}
    names = [str(field.column) for field in Decision._meta.concrete_fields if field.name not in fields]
    return [name for name in names if name in there]


def _quoted(name: str | None) -> str:
    return connection.ops.quote_name(str(name))


def _not_erased(is_not: str, key: str) -> str:
    """SQL that is true of every change but what an erasure record tells of: payload columns and the seal."""
    may = {*Decision.PAYLOADS, "seal", "seal_key"}
    others = [_quoted(name) for name in _columns_but(may)]
    changed = " OR ".join(f"OLD.{name} {is_not} NEW.{name}" for name in others)
    erased, table = _quoted(ErasedRow._meta.db_table), Decision._meta.db_table
    told = f"SELECT 1 FROM {erased} e WHERE e.{_quoted('table')} = '{table}' AND e.{_quoted('row')} = {key}"  # noqa: S608
    return f"({changed} OR NOT EXISTS ({told} AND e.new_seal = NEW.seal AND e.old_seal = OLD.seal))"


# As SQLite keeps a UUID, written as an erasure record writes it.
_SQLITE_KEY = (
    "lower("
    + " || '-' || ".join(
        f"substr(NEW.id, {first}, {length})" for first, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    + ")"
)


def _install_sqlite() -> list[str]:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
    forbidden = f"({_forbidden('IS NOT', _SQLITE_BYTES.format(ENCRYPTED.hex()))})"
    return [
        "DROP TRIGGER IF EXISTS decision_no_update",
        f"CREATE TRIGGER decision_no_update BEFORE UPDATE ON {_table()} "
        f"WHEN {forbidden} AND {_not_erased('IS NOT', _SQLITE_KEY)} {refuse}",
        f"CREATE TRIGGER IF NOT EXISTS decision_no_delete BEFORE DELETE ON {_table()} {refuse}",
    ]


def _install_postgresql() -> list[str]:
    unless = f"IF TG_OP = 'UPDATE' THEN IF NOT {_not_erased('IS DISTINCT FROM', 'NEW.id::text')} THEN RETURN NEW; "
    return [
        "CREATE OR REPLACE FUNCTION countersign_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {unless} END IF; END IF; RAISE EXCEPTION '{_MESSAGE}'; END $$",
        f"CREATE OR REPLACE TRIGGER decision_no_update BEFORE UPDATE ON {_table()} FOR EACH ROW "
        f"WHEN ({_forbidden('IS DISTINCT FROM', _POSTGRESQL_BYTES.format(ENCRYPTED.hex()))}) "
        "EXECUTE FUNCTION countersign_append_only()",
        f"CREATE OR REPLACE TRIGGER decision_no_delete BEFORE DELETE OR TRUNCATE ON {_table()} "
        "FOR EACH STATEMENT EXECUTE FUNCTION countersign_append_only()",
    ]


def install_triggers(**_: Any) -> None:
    """Put the triggers in place. Idempotent; connected to post_migrate."""
    if Decision._meta.db_table not in connection.introspection.table_names():
        return
    statements = {"sqlite": _install_sqlite, "postgresql": _install_postgresql}.get(connection.vendor, list)()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def make_room(plan: Sequence[tuple[Any, bool]] = (), **_: Any) -> None:
    """Take away what stands in the way of a plan of migrations: SQLite rebuilds no table while a trigger speaks of one
    that is not there. `install_triggers` follows when they are done; of plans that leave the tables of `checkpoints`
    alone nothing is taken away, so that one that is refused leaves the trigger.
    """
    if connection.vendor == "sqlite" and any(one.app_label == ErasedRow._meta.app_label for one, _backwards in plan):
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER IF EXISTS decision_no_update")


def remove_triggers() -> None:
    """Take the triggers away. Only for emptying a test database."""
    suffix = f" ON {_table()}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name in _NAMES:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{suffix}")


@contextmanager
def triggers_lifted() -> Iterator[None]:
    """The triggers away while the block runs. Only for emptying a test database."""
    remove_triggers()
    try:
        yield
    finally:
        install_triggers()


def missing_triggers() -> list[str]:
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


def check_triggers(app_configs: Any, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """approvals.W001: a trigger that keeps decisions append-only is missing. At migrate, and in `check --database`."""
    if not databases or "default" not in databases:
        return []
    if Decision._meta.db_table not in connection.introspection.table_names():
        return []
    hint = "run manage.py migrate"
    return [
        Warning(f"trigger {name} is missing: decisions could be changed", hint=hint, id="approvals.W001")
        for name in missing_triggers()
    ]
