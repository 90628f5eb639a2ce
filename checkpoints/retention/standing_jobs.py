"""The standing jobs that take away what nobody needs: jobs that ended long ago, payloads that no row points to.
`orchestrator.jobs` knows them by their kinds.
"""

from collections.abc import Iterator

from checkpoints.db.clock import db_in
from checkpoints.models.job import Job
from checkpoints.payloads import orphans
from checkpoints.queue.jobs import JobLease, Step

KEPT_DAYS = 30
BATCH = 1000


def jobs_that_ended(lease: JobLease) -> Iterator[Step]:
    """Remove jobs that ended more than `KEPT_DAYS` ago, in batches."""
    removed = int(lease.place or 0)
    while True:
        old = Job.objects.filter(ended_at__lt=db_in(-KEPT_DAYS * 86_400)).values("id")[:BATCH]
        ids = [row["id"] for row in old]
        if not ids:
            return
        Job.objects.filter(id__in=ids).delete()
        removed += len(ids)
        yield Step(removed, removed, "old jobs removed", place=removed)


def payloads_without_a_row(lease: JobLease) -> Iterator[Step]:
    """Delete the bytes that no row has pointed to for a day. Its place: names looked at and left, by backend."""
    left: dict[str, int] = dict(lease.place or {})
    deleted: dict[str, int] = {}
    for swept in orphans.delete_orphans(done=left):
        left[swept.backend], deleted[swept.backend] = swept.left, swept.deleted
        gone = sum(deleted.values())
        yield Step(gone, note=f"payloads without a row deleted, {sum(left.values())} left", place=left)
