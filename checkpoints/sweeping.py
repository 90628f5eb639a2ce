"""The standing job that takes away jobs which ended long ago. `orchestrator.jobs` knows it by its kind."""

from collections.abc import Iterator

from checkpoints.clock import db_in
from checkpoints.jobs import JobHold, Step
from checkpoints.models.job import Job

KEPT_DAYS = 30
BATCH = 1000


def jobs_that_ended(hold: JobHold) -> Iterator[Step]:
    """Remove jobs that ended more than `KEPT_DAYS` ago, in batches."""
    removed = int(hold.place or 0)
    while True:
        old = Job.objects.filter(ended_at__lt=db_in(-KEPT_DAYS * 86_400)).values("id")[:BATCH]
        ids = [row["id"] for row in old]
        if not ids:
            return
        Job.objects.filter(id__in=ids).delete()
        removed += len(ids)
        yield Step(removed, removed, "old jobs removed", place=removed)
