"""The pusher's wait for work: on PostgreSQL for a notification, on SQLite for a commit of
another process or the next poll.
"""

import os
import time
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from checkpoints.conf import conf
from checkpoints.queue.notify import CHANNEL, JOB_DUE
from orchestrator.worker.shared_state import SharedState

NET_SECONDS = 1.0
"""The longest wait between two looks on PostgreSQL, because nothing notifies of due
times and expired leases.
"""

GLANCE_SECONDS = 0.005
"""The pause between two glances whether another process has committed to SQLite."""


class Listener:
    """Listens on a separate connection, opened by the process that first uses it."""

    def __init__(self) -> None:
        self._version = 0
        self._link: BaseDatabaseWrapper | None = None
        self._pid = 0

    def listen(self) -> None:
        """Listen before the look at the queue, so that nothing is missed between the
        look and the wait.
        """
        if connection.vendor != "postgresql":
            self._version = _version_of_sqlite()
            return
        if self._link is not None and self._pid == os.getpid():
            return
        link = connection.copy()
        with link.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._link = link
        self._pid = os.getpid()

    def wait(self, state: SharedState) -> bool:
        """Wait until a run is woken, a slot is free or it is time to look. Return
        whether a notification came that a job is due.
        """
        if self._link is None:
            self._wait_for_commit(state)
            return False
        driver: Any = self._link.connection
        state.wait(NET_SECONDS, driver)
        # The driver's own errors become Django's, which the broker takes as a lost
        # database.
        with self._link.wrap_database_errors:
            return JOB_DUE in [note.payload for note in driver.notifies(timeout=0)]

    def _wait_for_commit(self, state: SharedState) -> None:
        """Wait until the next poll of SQLite, or until another process has committed
        something since the last look, or a slot is free.
        """
        poll_at = time.monotonic() + conf().poll_seconds
        pause = min(GLANCE_SECONDS, conf().poll_seconds)
        # At least one pause: beside a busy writer each look would lead to the next.
        while not state.wait(pause) and time.monotonic() < poll_at:
            if _version_of_sqlite() != self._version:
                return

    def close(self) -> None:
        """Forget a connection that broke."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _version_of_sqlite() -> int:
    """Return a number that changes when another connection commits to SQLite. Reads no
    table: some microseconds.
    """
    connection.ensure_connection()
    driver: Any = connection.connection
    with connection.wrap_database_errors:
        (version,) = driver.execute("PRAGMA data_version").fetchone()
    return int(version)
