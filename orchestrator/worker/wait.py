"""The pusher's wait for work: on PostgreSQL for a notification, elsewhere for the next
poll.
"""

import os
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


class Listener:
    """Listens on a separate connection, opened by the process that first uses it."""

    def __init__(self) -> None:
        self._link: BaseDatabaseWrapper | None = None
        self._pid = 0

    def listen(self) -> None:
        """Listen before the look at the queue, so that nothing is missed between the
        look and the wait.
        """
        if connection.vendor != "postgresql" or (
            self._link is not None and self._pid == os.getpid()
        ):
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
            state.wait(conf().poll_seconds)
            return False
        driver: Any = self._link.connection
        state.wait(NET_SECONDS, driver)
        # The driver's own errors become Django's, which the broker takes as a lost
        # database.
        with self._link.wrap_database_errors:
            return JOB_DUE in [note.payload for note in driver.notifies(timeout=0)]

    def close(self) -> None:
        """Forget a connection that broke."""
        if self._link is not None:
            self._link.close()
            self._link = None
