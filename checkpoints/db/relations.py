"""Many rows as one relation inside a statement. PostgreSQL gets them as one JSON document: some thousand parameters
cost its driver more than the rows cost the server. `sql` and `batches` call it; it knows no model.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from django.db import connection

FEW = 8
"""Rows that are written out as parameters everywhere: their statements are short, and often the same."""


def relation(casts: Sequence[str], rows: int) -> str:
    """The text of a relation `given` of so many rows of columns of these types, called c0, c1 ..."""
    if connection.vendor == "sqlite":
        columns = ", ".join(f"column{n + 1} AS c{n}" for n in range(len(casts)))
        one = f"({', '.join(['%s'] * len(casts))})"
        return f"(SELECT {columns} FROM (VALUES {', '.join([one] * rows)})) AS given"  # noqa: S608
    columns = ", ".join(f"decode(c{n}, 'hex') AS c{n}" if c == "bytea" else f"c{n}" for n, c in enumerate(casts))
    raw = ", ".join(f"c{n} {'text' if c == 'bytea' else c}" for n, c in enumerate(casts))
    return f"(SELECT {columns} FROM json_to_recordset(%s::json) AS raw({raw})) AS given"  # noqa: S608


def document(rows: Sequence[Sequence[Any]]) -> str:
    """The parameter of a relation on PostgreSQL. Values are as fields have them; bytes, times and ids too."""
    names = [f"c{n}" for n in range(len(rows[0]))]
    return orjson.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_hex).decode()


def _hex(value: bytes | memoryview) -> str:
    return value.hex()
