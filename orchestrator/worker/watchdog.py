"""The watchdog: notices that a cluster has stopped working although its processes live. Asked by the main process."""

import time

from django.db import Error, connection

from checkpoints.queue import jobs, leases
from orchestrator.worker import claimable
from orchestrator.worker.shared_state import SharedState

SILENCE_SECONDS = 15.0
LOOK_SECONDS = 1.0


class Watchdog:
    """Of one cluster. It only judges; the one who asks does the killing."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._next = 0.0

    def alarm(self) -> str | None:
        """Why the cluster must be killed, None while all is well. Looks at most once a second."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + LOOK_SECONDS
        if self._state.sentinel_silent() > SILENCE_SECONDS:
            return f"the sentinel has not looked after its processes for {SILENCE_SECONDS:g} s"
        if self._state.pusher_silent() > SILENCE_SECONDS and self._state.slots.free() and _work_is_due():
            return f"work is due and a slot is free, but nothing was claimed for {SILENCE_SECONDS:g} s"
        return None


def _work_is_due() -> bool:
    """False also where the database cannot be asked: then nobody can claim, and killing would not help."""
    try:
        return leases.any_run_due(claimable.claimable()) or jobs.any_due()
    except Error:
        connection.close()
        return False
