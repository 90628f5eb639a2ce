"""The standing jobs that clean up: jobs that ended and workers that left long ago,
payloads that no row points to, uploads that no run names, memory that is older than the
settings keep it. `orchestrator.jobs` has them by their kinds.
"""

from collections.abc import Iterator
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef

from checkpoints import uploads
from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.memory import shelf
from checkpoints.models import Job, LegalHold, MemoryTrace, Upload, Worker
from checkpoints.payloads import orphans
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention import holds
from orchestrator.engine.errors import CountersignError

KEPT_DAYS = 30
UPLOADS_KEPT_DAYS = 7
"""How long a file may lie before a run names it."""
BATCH = 1000
MEMORY_BATCH = 100


def jobs_that_ended(lease: JobLease) -> Iterator[Step]:
    """Remove jobs that ended more than `KEPT_DAYS` ago, in batches."""
    removed = int(lease.place or 0)
    while True:
        old = Job.objects.filter(ended_at__lt=db_in(-KEPT_DAYS * 86_400))
        # A slice of a query cannot be deleted itself.
        ids = [row["id"] for row in old.values("id")[:BATCH]]
        if not ids:
            return
        Job.objects.filter(id__in=ids).delete()
        removed += len(ids)
        yield Step(removed, removed, "old jobs removed", place=removed)


def workers_that_left(lease: JobLease) -> Iterator[Step]:
    """Remove the rows of workers whose last heartbeat is more than `KEPT_DAYS` ago."""
    old = Worker.objects.filter(heartbeat_at__lt=db_in(-KEPT_DAYS * 86_400))
    removed, _ = old.delete()
    yield Step(removed, removed, "old workers removed")


def memory_that_is_old(lease: JobLease) -> Iterator[Step]:
    """Forget traces of memory that are older than `MEMORY_DAYS`; 0 keeps them forever.
    Their versions stay, and each trace leaves a line in the audit log. A trace that a
    run under a legal hold wrote stays. Its place: {id, forgotten, refused}.

    A trace that does not match its seal stays as it is. Raises `TamperedRow` or
    `WrongKey` for the first of these, once all others are done, at each attempt.
    """
    place: dict[str, Any] = {
        "id": 0,
        "forgotten": 0,
        "refused": None,
        **(lease.place or {}),
    }
    days = conf().memory_days
    holds_of_run = LegalHold.objects.filter(run=OuterRef("run"), released_at=None)
    is_held = Exists(holds_of_run)
    while days:
        # Without the held ones only to spare their locks: `_forget` looks once more.
        rows = MemoryTrace.objects.filter(
            ~is_held, deleted=False, at__lt=db_in(-days * 86_400), id__gt=place["id"]
        )
        batch = list(rows.order_by("id")[:MEMORY_BATCH])
        if not batch:
            break
        for row in batch:
            try:
                # A trace that was rewritten since is young, and stays.
                place["forgotten"] += _forget(row)
            except CountersignError:
                # It goes on: one bad trace must not keep all others forever.
                place["refused"] = place["refused"] or row.id
        place["id"] = batch[-1].id
        yield Step(
            place["forgotten"], note="old traces of memory forgotten", place=dict(place)
        )
    # Only now, so that the job fails and is seen, but after it has done its work.
    for row in MemoryTrace.objects.filter(id=place["refused"]):
        shelf.require_sound(row)


def _forget(row: MemoryTrace) -> bool:
    """Forget a trace, unless the run that wrote it has come under a hold in the
    meantime. Returns whether it was forgotten. Raises `TamperedRow`, `WrongKey`.
    """
    with transaction.atomic():
        # A trace without a run was not written by one, so no hold can be about it.
        if row.run is not None and not holds.lock_unless_held(row.run):
            return False
        return shelf.delete_trace(row, by=None, version=row.version)


def uploads_without_a_run(lease: JobLease) -> Iterator[Step]:
    """Delete uploaded files that no run names, and that are older than
    `UPLOADS_KEPT_DAYS`: those of runs that were removed, and those with which nothing
    was started. Its place: {id, deleted}.
    """
    place: dict[str, Any] = dict(lease.place or {"id": "", "deleted": 0})
    old = Upload.objects.filter(
        at__lt=db_in(-UPLOADS_KEPT_DAYS * 86_400), references=None
    )
    rows = old.order_by("id").values_list("id", flat=True)
    while True:
        page = rows.filter(id__gt=place["id"]) if place["id"] else rows
        batch = list(page[:BATCH])
        if not batch:
            return
        deleted = len(batch) - len(uploads.delete_unneeded(batch))
        place = {"id": str(batch[-1]), "deleted": place["deleted"] + deleted}
        yield Step(
            place["deleted"],
            note="uploaded files that no run names deleted",
            place=place,
        )


def payloads_without_a_row(lease: JobLease) -> Iterator[Step]:
    """Delete the bytes that no row has pointed to for a day. Its place: how many names
    were looked at and stay, by backend.
    """
    remaining: dict[str, int] = dict(lease.place or {})
    deleted: dict[str, int] = {}
    for swept in orphans.delete_orphans(done=remaining):
        remaining[swept.backend] = swept.remaining
        deleted[swept.backend] = swept.deleted
        total = sum(remaining.values())
        yield Step(
            sum(deleted.values()),
            note=f"payloads without a row deleted, {total} left",
            place=remaining,
        )
