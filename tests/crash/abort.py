"""Aborts the process's work at database statement k, before or after it, or right after a commit: a crash in small.

The abort is a `BaseException` that nothing of ours handles, raised in the thread that does the runner's own statements.
What was not committed is rolled back, exactly as when the process dies; the lease stays until somebody ends it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper


class Aborted(BaseException):
    """The process would be dead now."""


class Points:
    """Counts the moments at which a crash can fall, and aborts at the chosen one (None: only counts)."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.seen = 0
        self._thread = threading.current_thread()

    def pass_one(self) -> None:
        """One moment goes by; aborts if it is the chosen one."""
        if threading.current_thread() is not self._thread:
            return
        self.seen += 1
        if self.seen - 1 == self.at:
            raise Aborted

    def _statement(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.pass_one()
        result = execute(sql, params, many, context)
        self.pass_one()
        return result

    @contextmanager
    def watching(self) -> Iterator["Points"]:
        """Statements and commits of this thread count while the block runs; an abort ends it quietly."""
        commit = BaseDatabaseWrapper.commit

        def committed(wrapper: BaseDatabaseWrapper) -> None:
            commit(wrapper)
            self.pass_one()

        BaseDatabaseWrapper.commit = committed  # type: ignore[method-assign]
        try:
            with connection.execute_wrapper(self._statement):
                yield self
        except Aborted:
            connection.close()
        finally:
            BaseDatabaseWrapper.commit = commit  # type: ignore[method-assign]
