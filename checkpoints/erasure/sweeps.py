"""Erases values outside the sealed rows of a run: uploaded files, texts of jobs,
archived bundles. Each sweep may be repeated at any moment and does what remains to be
done. Other floors add theirs at start-up.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

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
    """Return the eraser of the values that a record names."""
    if not record.paths:
        return WholeEraser(record.id)
    words = sealed_columns.read_value(record, "words") or []
    paths = [parsed_path(path) for path in record.paths]
    return PathEraser(record.id, paths, words)


@frozen
class Sweep:
    """A place outside sealed rows that an erasure clears.

    `count`: how many values are there, for the plan. `erase`: does the work, in its own
    transactions. `again`: values may be added there during an erasure, so it is
    repeated at the end, under the lock of the run.
    """

    name: str
    count: Callable[[Run], int]
    erase: Callable[[Run, ErasureRecord, Eraser], None]
    again: bool = False


def _files_in(input_json: Any) -> set[str]:
    """Return the ids of the uploaded files that the input of a run names."""
    return {reference["file"] for reference in uploads.refs_in(input_json)}


def _erase_files(
    run: Run,
    record: ErasureRecord,
    eraser: Eraser,
) -> None:
    """Delete the files that are no longer named anywhere; those that another run names
    stay, and are listed in the record. A run that is being erased as a whole names
    none.
    """
    input_json = sealed_columns.read_value(run, "input")
    files_before = _files_in(input_json)
    files_after = _files_in(eraser.input(input_json))
    unneeded = [UUID(file) for file in files_before - files_after]
    staying = [UUID(file) for file in files_before & files_after]
    _erase_names(staying, run, eraser)
    if not unneeded:
        return
    whole_erasures = ErasureRecord.objects.filter(ended_at=None, paths=[])
    is_erased = Q(run=run.id) | Q(run__in=whole_erasures.values("run"))
    with transaction.atomic():
        # Runs erased along name it too, and each would keep the file for the others.
        references = UploadReference.objects.filter(is_erased, upload__in=unneeded)
        references.delete()
        needed = uploads.delete_unneeded(unneeded)
    _note_kept_files(record, map(str, needed))


def _note_kept_files(record: ErasureRecord, names: Iterable[str]) -> None:
    """List files in the record that an erasure did not delete."""
    kept_files = {*record.kept_files, *names}
    record.kept_files = sorted(kept_files)


def _erase_names(files: Collection[UUID], run: Run, eraser: Eraser) -> None:
    """Erase the names of files that stay, if no other run still shows them."""
    for upload in Upload.objects.filter(id__in=files):
        erased_name = eraser.text(upload.name)
        if erased_name == upload.name:
            continue
        if _is_shown_elsewhere(upload, run):
            continue
        row = Upload.objects.filter(id=upload.id)
        row.update(name=erased_name)


def _is_shown_elsewhere(upload: Upload, run: Run) -> bool:
    """Return whether the input of another run keeps the name of a file. Only runs from
    which something was erased are opened: each of the others keeps it.
    """
    references = UploadReference.objects.filter(upload=upload)
    others = references.exclude(run=run.id).values("run")
    runs = Run.objects.filter(id__in=others).order_by("id")
    if runs.filter(erasure=None).exists():
        return True
    return any(_keeps_name(other, upload) for other in runs.iterator(chunk_size=BATCH))


def _keeps_name(run: Run, upload: Upload) -> bool:
    """Return whether an input names a file by its name, once the erasures of its run
    have ended.
    """
    input_json = sealed_columns.read_value(run, "input")
    for record in ErasureRecord.objects.filter(run=run.id, ended_at=None):
        eraser = eraser_of(record)
        input_json = eraser.input(input_json)
    for reference in uploads.refs_in(input_json):
        is_same_file = reference["file"] == str(upload.id)
        if is_same_file and reference["name"] == upload.name:
            return True
    return False


def _jobs_with_errors(run: Run) -> "QuerySet[Job]":
    return Job.objects.filter(run=run.id).exclude(error="")


def _erase_jobs(
    run: Run,
    record: ErasureRecord,
    eraser: Eraser,
) -> None:
    for job in _jobs_with_errors(run):
        erased_error = eraser.error(job.error)
        Job.objects.filter(id=job.id).update(error=erased_error)


def erase_orphans(run: Run) -> None:
    """Delete the payloads of a run in backends that no row refers to: those that were
    replaced, and those of a worker that never committed. A run that has ended gets no
    more commits.
    """
    _delete_orphans(run.id)


def _delete_orphans(run: UUID) -> None:
    for backend in payloads.backends().values():
        # Payloads in the rows themselves are erased with these.
        if backend.in_row:
            continue
        names = iter(backend.names(before=_EVER, folder=str(run)))
        batch = list(islice(names, BATCH))
        while batch:
            for name in orphans_among(batch):
                backend.delete(name, b"")
            batch = list(islice(names, BATCH))


def _archives(run: Run) -> list[str]:
    """Return the names of a run's bundles in the folder in which retention archives
    runs.
    """
    folder = conf().archive_folder
    if not folder:
        return []
    bundles = Path(folder).glob(f"{run.id}-*.bundle")
    return sorted(path.name for path in bundles)


def _note_archives(
    run: Run,
    record: ErasureRecord,
    eraser: Eraser,
) -> None:
    """List archived bundles in the record. A bundle is signed as a whole, so nothing in
    it can be erased.
    """
    _note_kept_files(record, _archives(run))


def _clear_store_forks(
    run: Run,
    record: ErasureRecord,
    eraser: Eraser,
) -> None:
    """Delete the forks that the record names, so that none is forgotten after an
    interruption.
    """
    forks = []
    for inherited in record.inherited:
        is_store_fork = inherited["how"] == STORE_FORK
        # The record names those too that were not to be erased along.
        if is_store_fork and inherited["erased"]:
            forks.append(UUID(inherited["run"]))
    for fork in store_forks.clear(forks):
        _delete_orphans(fork)


# A plan names these forks among the runs that inherited values.
def _count_nothing(run: Run) -> int:
    return 0


def _count_archives(run: Run) -> int:
    return len(_archives(run))


def _count_files(run: Run) -> int:
    input_json = sealed_columns.read_value(run, "input")
    return len(uploads.refs_in(input_json))


def _count_jobs(run: Run) -> int:
    return _jobs_with_errors(run).count()


SWEEPS: list[Sweep] = [
    Sweep(
        "forks that a store made",
        count=_count_nothing,
        erase=_clear_store_forks,
    ),
    Sweep(
        "archived bundles",
        count=_count_archives,
        erase=_note_archives,
        again=True,
    ),
    Sweep(
        "uploaded files",
        count=_count_files,
        erase=_erase_files,
    ),
    Sweep(
        "jobs",
        count=_count_jobs,
        erase=_erase_jobs,
    ),
]
"""In the order in which they run: files are found by an input that still names them."""
