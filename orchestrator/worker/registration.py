"""The row in which other processes see this cluster: its heartbeat, what it can run,
and requests that it drain.

The pusher writes it between two looks, so that no thread has to survive a fork; the
main process closes it.
"""

import os
import socket
import time
from typing import Any

import structlog
from django.db import transaction

from checkpoints.db.clock import db_now
from checkpoints.db.statements import update_returning
from checkpoints.models import Worker
from checkpoints.queue.processes import pid_space, started_ticks
from orchestrator import discovery
from orchestrator.jobs import kinds
from orchestrator.worker import claimable
from orchestrator.worker.shared_state import SharedState

BEAT_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Registration:
    """The heartbeat of one cluster."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._next = 0.0
        self._known = False

    def beat(self) -> bool:
        """Write the row if it is time to. Return whether it was."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + BEAT_SECONDS
        # A row that is gone was swept as that of a dead cluster, and is rewritten.
        if not self._known or not self._renew():
            self._appear()
        return True

    def _renew(self) -> bool:
        own_row = {"id": self._state.worker}
        values: dict[str, Any] = {
            "heartbeat_at": db_now(),
            "busy": self._state.slots.busy(),
        }
        if self._state.sums is not None:
            values["sums"] = self._state.sums.totals()
        # The statement that shows the cluster alive also reads whether it shall drain.
        updated = update_returning(Worker, own_row, ["draining"], **values)
        if updated and updated[0][0]:
            self._state.drain()
        return bool(updated)

    def _appear(self) -> None:
        # In one transaction, because each commit waits for the disk.
        with transaction.atomic():
            discovery.note_versions()
            kinds.ensure_standing()
            self._insert_row()
        self._known = True
        _warn_of_missing_secrets()

    def _insert_row(self) -> None:
        # The sentinel's process stands for the cluster: when it ends, all others are
        # killed.
        sentinel = os.getppid()
        Worker.objects.create(
            id=self._state.worker,
            host=socket.gethostname(),
            pid_space=pid_space(),
            pid=sentinel,
            process_started=started_ticks(sentinel),
            started_at=db_now(),
            heartbeat_at=db_now(),
            slots=len(self._state.slots),
            busy=self._state.slots.busy(),
            fingerprints=claimable.fingerprints(),
        )


def _warn_of_missing_secrets() -> None:
    for compiled, missing in claimable.without_secrets():
        log.warning(
            "secrets_missing",
            graph=compiled.name,
            version=compiled.version,
            secrets=missing,
        )


def leave(state: SharedState) -> None:
    """Record that the cluster has ended. Called only when all its processes have."""
    values: dict[str, Any] = {"stopped_at": db_now(), "busy": 0}
    # With what was done after the last heartbeat.
    if state.sums is not None:
        values["sums"] = state.sums.totals()
    Worker.objects.filter(id=state.worker, stopped_at=None).update(**values)
