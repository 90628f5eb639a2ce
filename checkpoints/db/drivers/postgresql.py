"""Replaces `ensure_connection` and `close` of a live connection, as long as a statement
that it sent is under way.

The statement is a transaction by itself and is handed to the server without waiting for
the answer, past Django's cursors; what its caller does meanwhile costs the run no time.
Both methods are put back before the answer is read.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection, errors, generators, pq
from psycopg.adapt import PyFormat, Transformer

MOST_PREPARED = 200
"""The most prepared statements of a connection; others are planned each time."""

_Names = dict[tuple[bytes, tuple[int, ...]], bytes]
"""The names of prepared statements, by text and types of parameters."""

_prepared: "WeakKeyDictionary[Connection[Any], _Names]" = WeakKeyDictionary()
"""By connection of the driver, its prepared statements."""

FORGOTTEN = b"26000"
"""The server knows no prepared statement of this name: psycopg drops all of a
connection after a rollback.
"""


def send(
    connection: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]
) -> Callable[[], int]:
    """Send a single statement. Returns a function that waits for its end and returns
    the number of rows that it affected. Both raise what Django raises. Any other use of
    the connection before that call waits for the end too, but does not get its error.
    """
    [(text, params)] = batch
    raw: Connection[Any] = connection.connection
    adapting = Transformer(raw)
    values: list[Any] = []
    for value in params:
        # A number as text fits a column of any width; the driver would choose the type
        # that fits the number. An id as text spares the driver three functions.
        if type(value) is int:
            value = str(value)
        elif type(value) is UUID:
            value = f"{value.int:032x}"
        values.append(value)
    with connection.wrap_database_errors:
        data = adapting.dump_sequence(values, [PyFormat.AUTO] * len(values))
        numbered = _numbered(text)
        types = adapting.types or ()
        formats = adapting.formats
        send_unprepared = partial(
            raw.pgconn.send_query_params, numbered, data, types, formats
        )
        name = None
        if raw.prepare_threshold is not None:
            name = _name(raw, numbered, types)
        if name is None:
            send_unprepared()
        else:
            raw.pgconn.send_query_prepared(name, data, formats)
        if raw.pgconn.flush():
            # More than the socket takes at once. The rest would not be sent before the
            # wait for the answer.
            raw.wait(generators.send(raw.pgconn))
    return _StatementUnderWay(connection, raw, send_unprepared)


class _StatementUnderWay:
    """A statement that was sent, until its end is known."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        raw: "Connection[Any]",
        send_unprepared: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._raw = raw
        self._send_unprepared = send_unprepared
        self._row_count: int | None = None
        self._error: BaseException | None = None
        # Every use of a connection through Django begins with the first of these, and
        # ends with the second.
        patched: Any = connection
        patched.ensure_connection = self._ensure_connection
        patched.close = self._close

    def __call__(self) -> int:
        self._arrive()
        if self._error is not None:
            raise self._error
        return self._row_count or 0

    def _ensure_connection(self) -> None:
        self._arrive()
        self._connection.ensure_connection()

    def _close(self) -> None:
        self._arrive()
        self._connection.close()

    def _arrive(self) -> None:
        if self._row_count is not None or self._error is not None:
            return
        del self._connection.ensure_connection, self._connection.close
        try:
            with self._connection.wrap_database_errors:
                result = self._raw.wait(generators.execute(self._raw.pgconn))[-1]
                if result.error_field(pq.DiagnosticField.SQLSTATE) == FORGOTTEN:
                    # It was refused by its name, before anything was done.
                    _prepared.pop(self._raw, None)
                    self._send_unprepared()
                    result = self._raw.wait(generators.execute(self._raw.pgconn))[-1]
                self._row_count = _checked(self._raw, result)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise  # meant for the code that waits here


def _checked(raw: Connection[Any], result: Any) -> int:
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result, encoding=raw.info.encoding)
    return int(result.command_tuples or 0)


def _name(raw: Connection[Any], text: bytes, types: tuple[int, ...]) -> bytes | None:
    """Return the name of the prepared statement, which is prepared first if need be;
    None if there are enough.
    """
    names = _prepared.setdefault(raw, {})
    name = names.get((text, types))
    if name is None and len(names) < MOST_PREPARED:
        name = b"countersign_%d" % len(names)
        _checked(raw, raw.pgconn.prepare(name, text, types))
        names[text, types] = name
    return name


@lru_cache(maxsize=500)
def _numbered(text: str) -> bytes:
    """Return the statement with the placeholders of the server: $1, $2, …"""
    numbers = count(1)

    def numbered(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return f"${next(numbers)}"

    return re.sub("%[s%]", numbered, text).encode()
