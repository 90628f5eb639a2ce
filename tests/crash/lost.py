"""Lost answers: a commit happens, and then the driver raises, so whoever committed does
not know that it did.

A commit is told by who made it: the verbs in `KINDS`, found on the stack. On PostgreSQL
the connection is gone afterwards, as it would be; SQLite has no connection that could
break, there it is the error alone.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.crash.abort import Watch, until_threads_rest, watching

KINDS = {
    ("orchestrator.runs.verbs", "start"): "start",
    ("checkpoints.ledger.commit", "stop_run"): "rest",
    ("checkpoints.ledger.commit", "append_events"): "intents",
    ("checkpoints.journal.results", "write_results"): "result",
    ("checkpoints.journal.results", "run_atomically"): "atomic result",
    ("checkpoints.memory.read_records", "_record"): "memory record",
    ("checkpoints.db.claim", "claim_rows"): "claim",
    ("checkpoints.queue.leases", "begin_lease"): "begin",
    ("checkpoints.queue.leases", "give_back"): "give back",
    ("checkpoints.queue.leases", "heartbeat"): "heartbeat",
    ("approvals.reviews", "sign"): "signing",
    ("orchestrator.runs.verbs", "resume"): "resume",
    ("orchestrator.runs.verbs", "settle"): "settle",
    ("orchestrator.runs.verbs", "cancel"): "cancel",
    ("orchestrator.travel.verbs", "fork"): "fork",
    ("orchestrator.travel.verbs", "rewind"): "rewind",
}
POINTS = {"superstep": "superstep", "settlement": "settlement", "failure": "failure"}
"""Commits of a checkpoint, by its source; one that also pauses the run is a `pause`
too.
"""
EVERY = {*KINDS.values(), *POINTS.values(), "pause"}
OF_NODES = {"memory record"}
"""Commits in the course of a node's own calls: a lost answer there is the node's error,
and the run fails with it.
"""
WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")


def kinds_here() -> set[str]:
    """Return the kinds of the commit under way, from the functions that called for it:
    the innermost verb counts.
    """
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        name = (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        if name == ("checkpoints.ledger.commit", "send"):
            point = frame.f_locals["checkpoint"]
            run_update = frame.f_locals["run_update"]
            return {POINTS[str(point.source)]} | (
                {"pause"} if run_update.status == "paused" else set()
            )
        if name in KINDS:
            return {KINDS[name]}
    return set()


class Answers(Watch):
    """Counts commits, and loses the answer of the chosen one (None: only counts).

    `fired` are the kinds of the commit whose answer was lost. In a life that it falls
    on, the one who acts may take the error as he likes; what he lets through ends the
    life quietly.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.seen: Counter[str] = Counter()
        self.number = 0
        self.fired: set[str] = set()
        self._lock = threading.Lock()

    def after(self, link: BaseDatabaseWrapper, sql: str) -> None:
        if (
            link.get_autocommit()
            and not link.in_atomic_block
            and sql.startswith(WRITES)
        ):
            self._pass(link)

    def committed(self, link: BaseDatabaseWrapper) -> None:
        self._pass(link)

    def _pass(self, link: BaseDatabaseWrapper) -> None:
        kinds = kinds_here()
        with self._lock:
            self.seen.update(kinds)
            self.number += 1
            if self.number - 1 != self.at:
                return
            self.fired = kinds or {"other"}
        if link.vendor == "postgresql" and link.connection is not None:
            link.connection.close()
        raise OperationalError("server closed the connection unexpectedly")

    def may_fail(self) -> bool:
        """Return whether the run may fail: only if the answer was lost in a node's own
        call.
        """
        return bool(self.fired & OF_NODES)

    @contextmanager
    def life(self) -> Iterator[None]:
        """One process acts, or one person; who gets no answer looks again later."""
        others = set(threading.enumerate())
        with watching(self):
            try:
                yield
            except Error:
                connection.close()
            finally:
                until_threads_rest(others)
