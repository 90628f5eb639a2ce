"""Verifies that a run is as it was written: its seals, its chains, and what its rows
say of each other. Reads only, in flat memory.

The command `verify_runs`, its job and `runs.resume` call `verify_run`. Other floors
examine their own rows of a run: each adds an examiner to `EXAMINERS` when it starts.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from checkpoints.core.arguments import checked_number
from checkpoints.core.ids import uuid_of
from checkpoints.models import Run
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.audit import audit
from checkpoints.verification.base import (
    DEADLINE_UNMET,
    LIST_DIFFERS,
    NO_TAMPERING,
    NOT_VERIFIED,
    TAMPERED,
    Examiner,
    Fault,
    Subject,
    not_verified,
    without_raising,
)
from checkpoints.verification.erasures import erasures
from checkpoints.verification.journal import journal
from checkpoints.verification.kept_by_people import kept_by_people
from checkpoints.verification.lines import departures
from checkpoints.verification.log import log
from checkpoints.verification.memory import memory
from checkpoints.verification.notes import notes
from checkpoints.verification.pending_writes import held_writes
from checkpoints.verification.removed_history import removed_history
from checkpoints.verification.run import (
    import_record,
    recorded_end,
    recorded_status,
    run_row,
)
from checkpoints.verification.timeline import timeline
from checkpoints.verification.uploads import files_named, uploaded
from orchestrator.engine.errors import PayloadLost, UnknownThing, WrongKey

__all__ = [
    "DEADLINE_UNMET",
    "EXAMINERS",
    "LIST_DIFFERS",
    "NOT_VERIFIED",
    "NO_TAMPERING",
    "TAMPERED",
    "Examiner",
    "Fault",
    "Subject",
    "audit",
    "not_verified",
    "verify_checkpoints",
    "verify_run",
    "without_raising",
]

# A run may have as many faults as it has rows.
MOST_FAULTS = 100
TRIES = 3

EXAMINERS: list[Examiner] = [
    run_row,
    erasures,
    import_record,
    log,
    departures,
    timeline,
    journal,
    held_writes,
    memory,
    notes,
    recorded_status,
    recorded_end,
    kept_by_people,
]
"""The examiners of the rows of a run, in order: the first fault is the one that is
named. Uploaded files follow.
"""


def verify_run(run_id: UUID | str, *, most: int = MOST_FAULTS) -> list[Fault]:
    """Return at most this many faults of a run, those of the first examiner first;
    empty if all is as it was written.

    Raises `UnknownThing`, and what the database raises while it does not serve; any
    other error is a fault of the run. A run that goes on meanwhile is examined again,
    in the end under its lock. Uploaded files are read once, and never under the lock:
    their bytes and their references do not change while a run goes on.
    """
    checked_number(most, "most", least=1)
    run = uuid_of(run_id, "run")
    try:
        subject, faults, files = _rows_examined(run, most, EXAMINERS)
    except UnknownThing:
        raise
    except Exception as error:
        # Not even the run's row could be read.
        return [not_verified(error, _name_of(run), run=str(run))]
    faults_of_files = without_raising(
        uploaded(subject, files), _name_of(run), run=str(run)
    )
    return list(islice(chain(faults, faults_of_files), most))


def verify_checkpoints(run_id: UUID) -> Fault | None:
    """Return the first fault of a run's row, its lines, its checkpoints, holds and
    pins; None if these are as they were written. To be called before some of them are
    removed. Raises `UnknownThing`.
    """
    examiners: list[Examiner] = [run_row, departures, timeline, kept_by_people]
    _, faults, _ = _rows_examined(run_id, 1, examiners)
    return faults[0] if faults else None


Examined = tuple[Subject, list[Fault], list[dict[str, Any]]]
"""A run, the faults of its rows, and the references to files in its input."""


def _rows_examined(run_id: UUID, most: int, examiners: list[Examiner]) -> Examined:
    # Unlocked at first: under a lock the run's worker would wait for the whole
    # examination.
    for _ in range(TRIES):
        run = _run_of(Run.objects.all(), run_id)
        examined = _examined(run, most, examiners)
        _, faults, _ = examined
        if not faults:
            return examined
        # Faults may come from what was written between the queries.
        if not _is_changed(run) and not _may_be_elsewhere(faults):
            return examined
    with transaction.atomic():
        run = _run_of(Run.objects.select_for_update(), run_id)
        return _examined(run, most, examiners)


def _run_of(runs: "QuerySet[Run]", run_id: UUID) -> Run:
    run = runs.filter(id=run_id).first()
    if run is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    return run


def _examined(run: Run, most: int, examiners: list[Examiner]) -> Examined:
    protection = protection_of(run)
    # Without the key of its hashes every row would be a fault; the missing key is named
    # once.
    try:
        protection.digest(b"")
    except WrongKey as error:
        subject = Subject(run, protection)
        return subject, [subject.refused(run, error)], []
    # If its row names no erasure, the rows of a run must have their original hashes.
    erased = ErasedRows.none()
    if run.erasure is not None:
        erased = ErasedRows.of_run(run.id)
    subject = Subject(run, protection, removed_history(run.id, protection), erased)
    # Lazily: no examiner starts once there are enough faults.
    faults = list(islice(_faults_found(subject, examiners), most))
    return subject, faults, files_named(subject)


def _faults_found(subject: Subject, examiners: list[Examiner]) -> Iterator[Fault]:
    """Yield what each of these examiners finds; an examiner that raises ends no other."""
    run = subject.run.id
    for examine in examiners:
        yield from without_raising(examine(subject), _name_of(run), run=str(run))


def _name_of(run: UUID) -> str:
    return f"{Run._meta.db_table} {run}"


def _is_changed(run: Run) -> bool:
    """Return whether the run was written to since it was read: the faults may come from
    two states mixed.
    """
    now = (
        Run.objects.filter(id=run.id)
        .values_list("event_seq", "head", "epoch", "wakes", "erasure")
        .first()
    )
    return now != (run.event_seq, run.head, run.epoch, run.wakes, run.erasure)


def _may_be_elsewhere(faults: list[Fault]) -> bool:
    """Return whether bytes are missing that a rotation of keys may have put under
    another name since the row was read.
    """
    return any(fault.code == PayloadLost.code_of_class for fault in faults)
