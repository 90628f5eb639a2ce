"""Wakes: "look at this run". Only an UPDATE and a NOTIFY, in the transaction of the
change that a run waits for.
"""

from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Case, F, Q, Value, When
from django.utils.module_loading import import_string

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db.clock import kept_now
from checkpoints.db.statements import update_rows
from checkpoints.models import Run

CHANNEL = "countersign"
"""The PostgreSQL channel on which workers listen."""
RUN_DUE = ""
JOB_DUE = "job"
"""The payloads of notifications, by what is due."""


def wake(run_id: UUID) -> None:
    """Count the wake, and queue the run if it is paused or waiting. Must run in the
    transaction of the change that causes it.

    For a leased run the wake is only counted: its holder sees the count when it gives
    the run back. Stopped and ended runs stay as they are.
    """
    update_rows(Run, {"id": run_id}, **woken())
    notify_workers()


@cache
def woken() -> dict[str, Any]:
    """Return the values of a run's row that a wake sets, for an UPDATE that changes
    more. The caller notifies the workers.
    """
    resting = Q(status__in=[Status.PAUSED, Status.WAITING])
    queued_if_resting = When(resting, then=Value(Status.QUEUED))
    due_now_if_resting = When(resting, then=kept_now())
    return {
        "wakes": F("wakes") + 1,
        "status": Case(queued_if_resting, default=F("status")),
        "due_at": Case(due_now_if_resting, default=F("due_at")),
    }


def notify_workers(what: str = RUN_DUE) -> None:
    """Notify listening workers that runs, or jobs, are due. PostgreSQL delivers it at
    commit; elsewhere workers poll. If the settings name a doorbell, it is called after
    the commit.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, what])
    doorbell = conf().doorbell
    if doorbell:
        # A doorbell that fails must not undo the act that rang it: what is due stays
        # due.
        transaction.on_commit(import_string(doorbell), robust=True)
