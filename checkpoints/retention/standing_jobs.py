"""The standing jobs that take away what nobody needs: jobs that ended and workers that left long ago, payloads that no
row points to, uploads that no run names, memory that is older than the settings keep it. `orchestrator.jobs` knows them
by their kinds.
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
"""So long a file may lie before a run names it."""
BATCH = 1000
MEMORY_BATCH = 100


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


def workers_that_left(lease: JobLease) -> Iterator[Step]:
    """Remove the rows of workers that showed themselves last more than `KEPT_DAYS` ago."""
    removed, _ = Worker.objects.filter(heartbeat_at__lt=db_in(-KEPT_DAYS * 86_400)).delete()
    yield Step(removed, removed, "old workers removed")


def memory_that_is_old(lease: JobLease) -> Iterator[Step]:
    """Forget what was remembered longer ago than `MEMORY_DAYS`; 0 keeps it for ever. Its versions stay, and each trace
    leaves a line in the audit log. What a run under a legal hold wrote stays. Its place: {id, forgotten, refused}.

    A trace that is not as it was sealed stays as it is. Raises `TamperedRow` or `WrongKey` for the first of these, once
    all others are done, at each attempt.
    """
    place: dict[str, Any] = {"id": 0, "forgotten": 0, "refused": None, **(lease.place or {})}
    days, held = conf().memory_days, Exists(LegalHold.objects.filter(run=OuterRef("run"), released_at=None))
    while days:
        rows = MemoryTrace.objects.filter(~held, deleted=False, at__lt=db_in(-days * 86_400), id__gt=place["id"])
        batch = list(rows.order_by("id")[:MEMORY_BATCH])
        if not batch:
            break
        for row in batch:
            try:
                # What was remembered anew since is young, and stays.
                place["forgotten"] += _forgotten(row)
            except CountersignError:
                place["refused"] = place["refused"] or row.id
        place["id"] = batch[-1].id
        yield Step(place["forgotten"], note="old traces of memory forgotten", place=dict(place))
    for row in MemoryTrace.objects.filter(id=place["refused"]):
        shelf.require_sound(row)


def _forgotten(row: MemoryTrace) -> bool:
    """Have a trace forgotten, where the run that wrote it has not come under a hold meanwhile. Raises `TamperedRow`,
    `WrongKey`.
    """
    with transaction.atomic():
        free = row.run is None or holds.lock_unless_held(row.run)
        return free and shelf.delete_trace(row, by=None, version=row.version)


def uploads_without_a_run(lease: JobLease) -> Iterator[Step]:
    """Delete uploaded files that no run names, and that are older than `UPLOADS_KEPT_DAYS`: those of runs that were
    removed, and those with which nothing was started. Its place: {id, deleted}.
    """
    place: dict[str, Any] = dict(lease.place or {"id": "", "deleted": 0})
    old = Upload.objects.filter(at__lt=db_in(-UPLOADS_KEPT_DAYS * 86_400), references=None)
    rows = old.order_by("id").values_list("id", flat=True)
    while batch := list((rows.filter(id__gt=place["id"]) if place["id"] else rows)[:BATCH]):
        deleted = len(batch) - len(uploads.delete_unneeded(batch))
        place = {"id": str(batch[-1]), "deleted": place["deleted"] + deleted}
        yield Step(place["deleted"], note="uploaded files that no run names deleted", place=place)


def payloads_without_a_row(lease: JobLease) -> Iterator[Step]:
    """Delete the bytes that no row has pointed to for a day. Its place: names looked at and left, by backend."""
    left: dict[str, int] = dict(lease.place or {})
    deleted: dict[str, int] = {}
    for swept in orphans.delete_orphans(done=left):
        left[swept.backend], deleted[swept.backend] = swept.left, swept.deleted
        gone = sum(deleted.values())
        yield Step(gone, note=f"payloads without a row deleted, {sum(left.values())} left", place=left)
