"""A crash in small: everything this process does with its database ends at moment k,
before or after a statement or right after a commit.

Watched are all connections of all threads, so what a node's own thread does in its
transaction counts too. Once the moment has come nothing reaches the database any more,
from whichever thread, exactly as if the process were dead; what was not committed is
rolled back, and the lease stays until it expires. A statement outside a transaction is
its own commit, so `after` it the work is done and nobody was told.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from checkpoints.db.drivers import sqlite
from orchestrator.execution import threads as node_threads


class Aborted(BaseException):
    """The process would be dead now. Nothing of ours handles it."""


class Watch:
    """Is told of each statement and each commit while `watching` runs."""

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        """A statement is about to be sent."""

    def after(self, link: BaseDatabaseWrapper, sql: str) -> None:
        """A statement was carried out."""

    def committed(self, link: BaseDatabaseWrapper) -> None:
        """A transaction was committed."""


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Call `watch` at the statements and commits of all connections of this process."""
    run = CursorWrapper._execute_with_wrappers
    commit = BaseDatabaseWrapper.commit

    def statement(cursor: Any, sql: str, params: Any, many: bool, executor: Any) -> Any:
        try:
            watch.before(cursor.db, sql)
            result = run(cursor, sql, params, many, executor)
            watch.after(cursor.db, sql)
        except Aborted:
            _hang_up(cursor)
            raise
        return result

    def committing(link: BaseDatabaseWrapper) -> None:
        commit(link)
        watch.committed(link)

    CursorWrapper._execute_with_wrappers = statement
    BaseDatabaseWrapper.commit = committing
    try:
        with _watching_what_is_sent(watch):
            yield
    finally:
        CursorWrapper._execute_with_wrappers = run
        BaseDatabaseWrapper.commit = commit


@contextmanager
def _watching_what_is_sent(watch: Watch) -> Iterator[None]:
    """The same for statements that go past Django's cursors."""
    with pytest.MonkeyPatch.context() as patch:
        if connection.vendor == "postgresql":
            from checkpoints.db.drivers import postgresql

            patch.setattr(postgresql, "send", _sending(watch, postgresql.send))
        else:
            patch.setattr(sqlite, "_do", _doing(watch, sqlite._do))
        yield


def _sending(watch: Watch, send: Any) -> Any:
    """Return a function that sends as `send` does, and that reports each statement to the
    watch. `after` a statement it was carried out, whether its answer was read or not.
    """

    def sending(link: BaseDatabaseWrapper, content: Any) -> Any:
        try:
            watch.before(link, content[0][0])
            answer = send(link, content)
            with suppress(Error):  # whoever asks for the answer is told
                answer()
            watch.after(link, content[0][0])
        except Aborted:
            link.close()
            raise
        return answer

    return sending


def _doing(watch: Watch, do: Any) -> Any:
    def doing(link: BaseDatabaseWrapper, sql: str, params: Any = ()) -> Any:
        watch.before(link, sql)
        result = do(link, sql, params)
        watch.committed(link) if sql == "COMMIT" else watch.after(link, sql)
        return result

    return doing


def _hang_up(cursor: Any) -> None:
    """Close what the system closes for a dead process. SQLite keeps the lock of a
    statement as long as its cursor is open. Whoever rolls back closes a connection that
    is in a transaction.
    """
    cursor.close()
    if not cursor.db.in_atomic_block:
        cursor.db.close()


def until_threads_rest(others: set[threading.Thread]) -> None:
    """Wait until the threads begun meanwhile have ended; those of node code never end,
    and must have nothing to do. The one that starts heartbeats stays for a while, sends
    nothing, and starts none of a slice that is over.
    """
    until = time.monotonic() + 5
    while time.monotonic() < until:
        threads = [
            thread
            for thread in threading.enumerate()
            if thread.is_alive() and thread.name != "heartbeats"
        ]
        crew_of_nodes = [
            thread
            for thread in threads
            if getattr(thread, "_target", None) is node_threads._work
        ]
        if len(node_threads._idle) == len(crew_of_nodes) and not set(
            threads
        ) - others - set(crew_of_nodes):
            return
        time.sleep(0.001)


class Points(Watch):
    """Counts the moments at which a crash can fall, and aborts at the chosen ones
    (none: only counts).

    `fired` says where the last fell, and is empty until then.
    """

    def __init__(self, *at: int) -> None:
        self.at = at
        self.seen = 0
        self.fired = ""
        self._dead = False
        self._lock = threading.Lock()

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self._pass(f"before {sql[:60]}")

    def after(self, link: BaseDatabaseWrapper, sql: str) -> None:
        self._pass(f"after {sql[:60]}")

    def committed(self, link: BaseDatabaseWrapper) -> None:
        self._pass("after a commit")

    def _pass(self, where: str) -> None:
        """One moment goes by; aborts if it is the chosen one."""
        with self._lock:
            if not self._dead:
                self.seen += 1
                if self.seen - 1 not in self.at:
                    return
                self._dead = True
                self.fired = where
        raise Aborted(self.fired)

    def may_fail(self) -> bool:
        """A crash fails nobody's run."""
        return False

    @contextmanager
    def life(self) -> Iterator[None]:
        """The life of one process: its moments count, and its abort ends it quietly,
        threads included.
        """
        others = set(threading.enumerate())
        with watching(self):
            try:
                yield
            except Aborted:
                connection.close()
            finally:
                until_threads_rest(others)
        self._dead = False
