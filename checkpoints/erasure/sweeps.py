"""What is erased outside the sealed rows of a run: uploaded files, texts of jobs, answers that are kept. Each sweep may
be begun again at any moment and finds what is left to do. Other floors add theirs when they are ready.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from checkpoints import payloads, uploads
from checkpoints.conf import conf
from checkpoints.core.eraser import Eraser, PathEraser, WholeEraser
from checkpoints.core.state_paths import parsed_path
from checkpoints.erasure import store_forks
from checkpoints.erasure.store_forks import STORE_FORK
from checkpoints.models import ErasureRecord, Job, Run, Upload, UploadReference
from checkpoints.payloads.orphans import orphans_among
from checkpoints.sealing import sealed_columns
from orchestrator.engine.frozen import frozen

BATCH = 500
_EVER = datetime.max.replace(tzinfo=UTC)


def eraser_of(record: ErasureRecord) -> Eraser:
    """Return the eraser of the values that a record tells of."""
    if not record.paths:
        return WholeEraser(record.id)
    words = sealed_columns.read_value(record, "words") or []
    return PathEraser(record.id, [parsed_path(path) for path in record.paths], words)


@frozen
class Sweep:
    """A place outside sealed rows. `count` is what the plan tells; `erase` does it, in transactions of its own.
    `again`: something may come there while the erasure goes on, so it is done once more at its end, under the lock of
    the run.
    """

    name: str
    count: Callable[[Run], int]
    erase: Callable[[Run, ErasureRecord, Eraser], None]
    again: bool = False


def _references(run: Run) -> list[dict[str, Any]]:
    return uploads.refs_in(sealed_columns.read_value(run, "input"))


def _erase_files(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Delete the files that are named nowhere any more; those that another run names stay, and the record says so. A
    run that is being erased as a whole names nothing.
    """
    given = sealed_columns.read_value(run, "input")
    kept = {one["file"] for one in uploads.refs_in(eraser.input(given))}
    named = {ref["file"] for ref in uploads.refs_in(given)}
    gone = [UUID(file) for file in named - kept]
    _erase_names([UUID(file) for file in named & kept], run, eraser)
    if not gone:
        return
    going = ErasureRecord.objects.filter(ended_at=None, paths=[]).values("run")
    with transaction.atomic():
        UploadReference.objects.filter(Q(run=run.id) | Q(run__in=going), upload__in=gone).delete()
        stay = uploads.delete_unneeded(gone)
    record.kept_files = sorted({*record.kept_files, *map(str, stay)})


def _erase_names(files: list[UUID], run: Run, eraser: Eraser) -> None:
    """Erase the names of files that stay, where no other run shows them any more."""
    for upload in Upload.objects.filter(id__in=files):
        left = eraser.text(upload.name)
        if left != upload.name and not _is_shown_elsewhere(upload, run):
            Upload.objects.filter(id=upload.id).update(name=left)


def _is_shown_elsewhere(upload: Upload, run: Run) -> bool:
    """Return whether the input of another run keeps the name of a file. Only runs of which something was erased are
    opened: each of the others keeps it.
    """
    others = UploadReference.objects.filter(upload=upload).exclude(run=run.id).values("run")
    rows = Run.objects.filter(id__in=others).order_by("id")
    if rows.filter(erasure=None).exists():
        return True
    return any(_keeps_name(other, upload) for other in rows.iterator(chunk_size=BATCH))


def _keeps_name(run: Run, upload: Upload) -> bool:
    """Return whether an input names a file by its name, once the erasures of its run have ended."""
    left = sealed_columns.read_value(run, "input")
    for record in ErasureRecord.objects.filter(run=run.id, ended_at=None):
        left = eraser_of(record).input(left)
    return any((ref["file"], ref["name"]) == (str(upload.id), upload.name) for ref in uploads.refs_in(left))


def _erase_jobs(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    for job in Job.objects.filter(run=run.id).exclude(error=""):
        Job.objects.filter(id=job.id).update(error=eraser.error(job.error))


def erase_orphans(run: Run) -> None:
    """Delete what payload backends keep of a run and no row points to: what stood there before, and what a worker put
    that never committed. Nobody commits to a run that has ended.
    """
    _delete_orphans(run.id)


def _delete_orphans(run: UUID) -> None:
    for backend in payloads.backends().values():
        if backend.in_row:
            continue
        names = iter(backend.names(before=_EVER, folder=str(run)))
        while batch := list(islice(names, BATCH)):
            for name in orphans_among(batch):
                backend.delete(name, b"")


def _archives(run: Run) -> list[str]:
    """The bundles of a run that stand in the folder in which retention archives runs, by name."""
    folder = conf().archive_folder
    return sorted(path.name for path in Path(folder).glob(f"{run.id}-*.bundle")) if folder else []


def _note_archives(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """An archived bundle is signed as a whole, so nothing in it can be erased; the record names it."""
    record.kept_files = sorted({*record.kept_files, *_archives(run)})


def _clear_store_forks(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """The record names those that go, so that nothing is forgotten where this is cut off."""
    asked = [UUID(one["run"]) for one in record.inherited if one["how"] == STORE_FORK and one["erased"]]
    for fork in store_forks.clear(asked):
        _delete_orphans(fork)


SWEEPS: list[Sweep] = [
    Sweep("forks that a store made", lambda run: 0, _clear_store_forks),
    Sweep("archived bundles", lambda run: len(_archives(run)), _note_archives, again=True),
    Sweep("uploaded files", lambda run: len(_references(run)), _erase_files),
    Sweep("jobs", lambda run: Job.objects.filter(run=run.id).exclude(error="").count(), _erase_jobs),
]
"""In the order in which they are done: files are found by an input that still names them."""
