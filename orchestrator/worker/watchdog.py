"""The watchdog: notices that a cluster has stopped working although its processes live.
The main process calls it.
"""

import time

from django.db import Error, connection

from checkpoints.db.limits import ANSWER_SECONDS, require_answer, short_statements
from checkpoints.queue import jobs, leases
from orchestrator.worker import claimable
from orchestrator.worker.shared_state import SharedState

SILENCE_SECONDS = 15.0
LOOK_SECONDS = 1.0


class Watchdog:
    """The watchdog of one cluster. It only judges; its caller does the killing."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._next = 0.0

    def alarm(self) -> str | None:
        """Return why the cluster must be killed; None while all is well. Looks at most
        once a second.
        """
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + LOOK_SECONDS
        # Without its sentinel nobody frees the slots of dead processes or replaces
        # them.
        if self._state.sentinel_silent() > SILENCE_SECONDS:
            return (
                "the sentinel has not looked after its processes "
                f"for {SILENCE_SECONDS:g} s"
            )
        if (
            self._state.pusher_silent() > SILENCE_SECONDS
            # Nobody misses a silent pusher while it has nothing to do. The query comes
            # last.
            and self._state.slots.free()
            and _work_is_due()
        ):
            return (
                "work is due and a slot is free, "
                f"but nothing was claimed for {SILENCE_SECONDS:g} s"
            )
        return None


def _work_is_due() -> bool:
    """Return whether a run or a job waits to be claimed. If the database does not
    answer soon, return False: then nobody can claim, and killing would not help.
    """
    try:
        require_answer(ANSWER_SECONDS)
        with short_statements(ANSWER_SECONDS):
            return leases.any_run_due(claimable.claimable()) or jobs.any_due()
    except Error:
        connection.close()
        return False
