"""Wakes: "look at this run". An UPDATE and a NOTIFY, nothing else; whoever changes what a run waits for calls it in
his transaction.
"""

from uuid import UUID

from django.db import connection, transaction
from django.db.models import Case, F, Q, Value, When
from django.utils.module_loading import import_string

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.models import Run

CHANNEL = "countersign"
"""The PostgreSQL channel on which workers listen."""
RUN_DUE, JOB_DUE = "", "job"
"""What a notification says is due."""


def wake(run_id: UUID) -> None:
    """Count the wake, and queue the run where it rests. Must run in the transaction of the change that causes it.

    A leased run is only counted: its holder sees the count when it gives back. Stopped and ended runs do not move.
    """
    resting = Q(status__in=[Status.PAUSED, Status.WAITING])
    Run.objects.filter(id=run_id).update(
        wakes=F("wakes") + 1,
        status=Case(When(resting, then=Value(Status.QUEUED)), default=F("status")),
        due_at=Case(When(resting, then=db_now()), default=F("due_at")),
    )
    notify_workers()


def notify_workers(what: str = RUN_DUE) -> None:
    """Tell listening workers to look now: for runs, or for jobs. PostgreSQL delivers it at commit; elsewhere workers
    poll. Where the settings name a doorbell, it is called after the commit.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, what])
    if conf().doorbell:
        # A doorbell that fails must not undo the act that rang it: what is due stays due.
        transaction.on_commit(import_string(conf().doorbell), robust=True)
