"""Replaces `ensure_connection` and `close` of a live connection, as long as a statement that it sent is on its way.

The statement is a transaction by itself and is handed to the server without waiting for the answer, past Django's
cursors; whatever its caller does until then costs the run no time. Both methods are put back before the answer is read.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection, errors, generators, pq
from psycopg.adapt import PyFormat, Transformer

MOST_PREPARED = 200
"""Statements that a connection keeps; the server plans what comes beyond them each time."""

_prepared: "WeakKeyDictionary[Connection[Any], dict[tuple[bytes, tuple[int, ...]], bytes]]" = WeakKeyDictionary()
"""By connection of the driver: the names of its prepared statements, by text and types of parameters."""


FORGOTTEN = b"26000"
"""The server knows no prepared statement of this name: psycopg drops all of a connection behind a rollback."""


def send(now: BaseDatabaseWrapper, batch: Sequence[tuple[str, list[Any]]]) -> Callable[[], int]:
    """Send a statement, one alone. Gives what waits for its end and gives the number of rows that it met. Both raise
    what Django raises. Whoever uses the connection before that was called waits for the end too, and learns nothing of
    it.
    """
    [(text, params)] = batch
    raw: Connection[Any] = now.connection
    adapting = Transformer(raw)
    # A number as text fits a column of any width; the driver would name the type that fits the number.
    values = [str(value) if type(value) is int else value for value in params]
    with now.wrap_database_errors:
        data = adapting.dump_sequence(values, [PyFormat.AUTO] * len(values))
        asked, types, formats = _numbered(text), adapting.types or (), adapting.formats
        unprepared = partial(raw.pgconn.send_query_params, asked, data, types, formats)
        name = _name(raw, asked, types) if raw.prepare_threshold is not None else None
        if name is None:
            unprepared()
        else:
            raw.pgconn.send_query_prepared(name, data, formats)
        if raw.pgconn.flush():
            # More than the socket takes at once. What is not flushed is not sent until somebody waits for the answer.
            raw.wait(generators.send(raw.pgconn))
    return _OnItsWay(now, raw, unprepared)


class _OnItsWay:
    """A statement that was sent, until its end is known."""

    def __init__(self, now: BaseDatabaseWrapper, raw: "Connection[Any]", unprepared: Callable[[], None]) -> None:
        self._now, self._raw, self._unprepared = now, raw, unprepared
        self._met: int | None = None
        self._error: BaseException | None = None
        # Every use of a connection through Django begins with the one of these, and ends with the other.
        now.ensure_connection = self._ensure_connection  # type: ignore[method-assign]
        now.close = self._close  # type: ignore[method-assign]

    def __call__(self) -> int:
        self._arrive()
        if self._error is not None:
            raise self._error
        return self._met or 0

    def _ensure_connection(self) -> None:
        self._arrive()
        self._now.ensure_connection()

    def _close(self) -> None:
        self._arrive()
        self._now.close()

    def _arrive(self) -> None:
        if self._met is not None or self._error is not None:
            return
        del self._now.ensure_connection, self._now.close
        try:
            with self._now.wrap_database_errors:
                result = self._raw.wait(generators.execute(self._raw.pgconn))[-1]
                if result.error_field(pq.DiagnosticField.SQLSTATE) == FORGOTTEN:
                    # It was refused by its name, before anything was done.
                    _prepared.pop(self._raw, None)
                    self._unprepared()
                    result = self._raw.wait(generators.execute(self._raw.pgconn))[-1]
                self._met = _checked(self._raw, result)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise  # meant for whoever waits here


def _checked(raw: Connection[Any], result: Any) -> int:
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result, encoding=raw.info.encoding)
    return int(result.command_tuples or 0)


def _name(raw: Connection[Any], text: bytes, types: tuple[int, ...]) -> bytes | None:
    """The name of the prepared statement, which is prepared first where need be; None where there are enough."""
    names = _prepared.setdefault(raw, {})
    name = names.get((text, types))
    if name is None and len(names) < MOST_PREPARED:
        name = b"countersign_%d" % len(names)
        _checked(raw, raw.pgconn.prepare(name, text, types))
        names[text, types] = name
    return name


@lru_cache(maxsize=500)
def _numbered(text: str) -> bytes:
    """The statement with its placeholders as the server knows them: $1, $2, …"""
    numbers = count(1)
    return re.sub("%[s%]", lambda one: "%" if one[0] == "%%" else f"${next(numbers)}", text).encode()
