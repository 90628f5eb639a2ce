"""Finding traces by words: full text on PostgreSQL, FTS5 on SQLite. Both only gather; the ranking is the engine's.

The index is installed after every migrate: it is no field of the model, and SQLite drops the triggers that keep it in
step when it rebuilds the table. `MemoryTrace.text` holds bare words, so no query can carry syntax.
"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connection

from checkpoints.models import MemoryTrace

INDEX = "checkpoints_memorytrace_search"
MOST_WORDS = 64
"""Different words that one search compares."""
_VECTOR = "to_tsvector('simple', text)"


def _table() -> str:
    return connection.ops.quote_name(MemoryTrace._meta.db_table)


def _sqlite() -> list[str]:
    table = _table()
    add = f"INSERT INTO {INDEX}(rowid, text) VALUES (new.id, new.text);"  # noqa: S608 - names of this module
    drop = f"INSERT INTO {INDEX}({INDEX}, rowid, text) VALUES ('delete', old.id, old.text);"  # noqa: S608
    acts = {"INSERT": add, "DELETE": drop, "UPDATE OF text": drop + add}
    return [
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {INDEX} USING fts5("
        f"text, content='{MemoryTrace._meta.db_table}', content_rowid='id', tokenize='unicode61 remove_diacritics 0')",
        *(
            f"CREATE TRIGGER IF NOT EXISTS {INDEX}_{act.split()[0].lower()} AFTER {act} ON {table} BEGIN {does} END"
            for act, does in acts.items()
        ),
        # What was written while the triggers were away.
        f"INSERT INTO {INDEX}({INDEX}) VALUES ('rebuild')",  # noqa: S608
    ]


def _postgresql() -> list[str]:
    return [f"CREATE INDEX IF NOT EXISTS {INDEX} ON {_table()} USING gin ({_VECTOR})"]


def install_index(**_: Any) -> None:
    """Put the index in place. Idempotent; connected to post_migrate."""
    if MemoryTrace._meta.db_table not in connection.introspection.table_names():
        return
    statements = {"sqlite": _sqlite, "postgresql": _postgresql}.get(connection.vendor, list)()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def missing_index() -> list[str]:
    """The names of what should be there and is not: the index, and on SQLite the triggers that keep it in step."""
    names, query = _INSTALLED.get(connection.vendor, ((), ""))
    if not query:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query)
        there = {row[0] for row in cursor.fetchall()}
    return [name for name in names if name not in there]


def check_index(app_configs: Any, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """checkpoints.W001: memory cannot be searched, or not all of it. At migrate, and in `check --database`."""
    if not databases or "default" not in databases:
        return []
    if MemoryTrace._meta.db_table not in connection.introspection.table_names():
        return []
    hint = "run manage.py migrate"
    return [
        Warning(f"{name} is missing: memory is not searched whole", hint=hint, id="checkpoints.W001")
        for name in missing_index()
    ]


def drop_removed_words() -> None:
    """On SQLite, write the index anew without the words of texts that were changed or deleted: it marks them as gone,
    and keeps them until its parts are merged. Nothing elsewhere: PostgreSQL does it when it rewrites the table.
    """
    if connection.vendor != "sqlite" or INDEX in missing_index():
        return
    with connection.cursor() as cursor:
        # Merged into one part, an index holds nothing that is gone. It reads no text, so it costs less than 'rebuild'.
        cursor.execute(f"INSERT INTO {INDEX}({INDEX}) VALUES ('optimize')")  # noqa: S608 - names of this module


def candidates(words: Sequence[str], namespace: str, limit: int) -> list[int]:
    """Ids of traces that hold at least one of the words (of `trace.words_in`): those that the database ranks best."""
    if not words:
        return []
    statement, query = _SEARCH[connection.vendor]
    with connection.cursor() as cursor:
        # Names are of this module; words and namespace are parameters.
        asked = query(list(dict.fromkeys(words))[:MOST_WORDS], namespace, limit)
        cursor.execute(statement.format(table=_table()), asked)
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
    "postgresql": ((INDEX,), "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"),
}
_SEARCH = {
    "sqlite": (
        f"SELECT t.id FROM {INDEX} AS s JOIN {{table}} AS t ON t.id = s.rowid "  # noqa: S608
        f"WHERE {INDEX} MATCH %s AND t.namespace = %s ORDER BY bm25({INDEX}) LIMIT %s",
        _fts5,
    ),
    "postgresql": (
        f"SELECT id FROM {{table}} WHERE namespace = %s AND {_VECTOR} @@ to_tsquery('simple', %s) "  # noqa: S608
        f"ORDER BY ts_rank({_VECTOR}, to_tsquery('simple', %s)) DESC LIMIT %s",
        _tsquery,
    ),
}
