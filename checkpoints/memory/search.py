"""Search for traces by words, with full text search on PostgreSQL and FTS5 on SQLite.
Both only collect candidates; the engine ranks them.

The index is installed after every migrate, because it is no field of the model, and
SQLite drops the triggers that keep it up to date when it rebuilds the table.
`MemoryTrace.text` holds bare words, so no query can carry syntax.
"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connection

from checkpoints.models import MemoryTrace

INDEX = "checkpoints_memorytrace_search"
MOST_WORDS = 64
"""The most different words that one search compares."""
_VECTOR = "to_tsvector('simple', text)"


def _table() -> str:
    return connection.ops.quote_name(MemoryTrace._meta.db_table)


def _sqlite() -> list[str]:
    table = _table()
    add = f"INSERT INTO {INDEX}(rowid, text) VALUES (new.id, new.text);"  # noqa: S608 - names of this module
    drop = (
        f"INSERT INTO {INDEX}({INDEX}, rowid, text) "  # noqa: S608
        "VALUES ('delete', old.id, old.text);"
    )
    body_of_trigger = {"INSERT": add, "DELETE": drop, "UPDATE OF text": drop + add}
    statements = [
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {INDEX} USING fts5("
        f"text, content='{MemoryTrace._meta.db_table}', content_rowid='id', "
        "tokenize='unicode61 remove_diacritics 0')"
    ]
    for act, body in body_of_trigger.items():
        name = f"{INDEX}_{act.split()[0].lower()}"
        statements.append(
            f"CREATE TRIGGER IF NOT EXISTS {name} AFTER {act} ON {table} "
            f"BEGIN {body} END"
        )
    # Adds what was written while there were no triggers.
    statements.append(f"INSERT INTO {INDEX}({INDEX}) VALUES ('rebuild')")  # noqa: S608
    return statements


def _postgresql() -> list[str]:
    return [f"CREATE INDEX IF NOT EXISTS {INDEX} ON {_table()} USING gin ({_VECTOR})"]


def install_index(**_: Any) -> None:
    """Create the index if it is missing. Connected to post_migrate."""
    if MemoryTrace._meta.db_table not in connection.introspection.table_names():
        return
    statements_by_vendor = {"sqlite": _sqlite, "postgresql": _postgresql}
    statements = statements_by_vendor.get(connection.vendor, list)
    with connection.cursor() as cursor:
        for statement in statements():
            cursor.execute(statement)


def missing_index() -> list[str]:
    """Return the names of what is missing: the index or, on SQLite, one of the triggers
    that keep it up to date.
    """
    names, query = _INSTALLED.get(connection.vendor, ((), ""))
    if not query:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query)
        existing = {row[0] for row in cursor.fetchall()}
    return [name for name in names if name not in existing]


def check_index(
    app_configs: Any, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Return checkpoints.W001 where memory cannot be searched, or not all of it. Runs
    at migrate, and in `check --database`.
    """
    if not databases or "default" not in databases:
        return []
    if MemoryTrace._meta.db_table not in connection.introspection.table_names():
        return []
    hint = "run manage.py migrate"
    return [
        Warning(
            f"{name} is missing: memory is not searched whole",
            hint=hint,
            id="checkpoints.W001",
        )
        for name in missing_index()
    ]


def drop_removed_words() -> None:
    """On SQLite, rewrite the index without the words of texts that were changed or
    deleted: it only marks these, and keeps them until its parts are merged. On
    PostgreSQL do nothing: the words go when the table is rewritten.
    """
    if connection.vendor != "sqlite" or INDEX in missing_index():
        return
    with connection.cursor() as cursor:
        # Merged into one part, an index holds nothing that was removed. This reads no
        # text, so it costs less than 'rebuild'.
        cursor.execute(f"INSERT INTO {INDEX}({INDEX}) VALUES ('optimize')")  # noqa: S608 - names of this module


def candidates(words: Sequence[str], namespace: str, limit: int) -> list[int]:
    """Return the ids of traces that hold at least one of the words (of
    `trace.words_in`): those that the database ranks best.
    """
    if not words:
        return []
    statement, params_of = _SEARCH[connection.vendor]
    distinct = list(dict.fromkeys(words))[:MOST_WORDS]
    with connection.cursor() as cursor:
        # Names are of this module; words and namespace are parameters.
        params = params_of(distinct, namespace, limit)
        cursor.execute(statement.format(table=_table()), params)
        return [row[0] for row in cursor.fetchall()]


def _fts5(words: Sequence[str], namespace: str, limit: int) -> list[Any]:
    return [" OR ".join(f'"{word}"' for word in words), namespace, limit]


def _tsquery(words: Sequence[str], namespace: str, limit: int) -> list[Any]:
    query = " | ".join(f"'{word}'" for word in words)
    return [namespace, query, query, limit]


_INSTALLED = {
    "sqlite": (
        (INDEX, *(f"{INDEX}_{act}" for act in ("insert", "update", "delete"))),
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger')",
    ),
    "postgresql": (
        (INDEX,),
        "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()",
    ),
}
_SEARCH = {
    "sqlite": (
        f"SELECT t.id FROM {INDEX} AS s JOIN {{table}} AS t ON t.id = s.rowid "  # noqa: S608
        f"WHERE {INDEX} MATCH %s AND t.namespace = %s ORDER BY bm25({INDEX}) LIMIT %s",
        _fts5,
    ),
    "postgresql": (
        f"SELECT id FROM {{table}} WHERE namespace = %s "  # noqa: S608
        f"AND {_VECTOR} @@ to_tsquery('simple', %s) "
        f"ORDER BY ts_rank({_VECTOR}, to_tsquery('simple', %s)) DESC LIMIT %s",
        _tsquery,
    ),
}
