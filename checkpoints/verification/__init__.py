"""Whether a run is as it was written: seals, chains, what its rows say of each other. Reads only, in flat memory.

The command `verify_runs`, its job and `runs.resume` call `verify_run`. What other floors know of a run they examine
themselves: they add an examiner to `EXAMINERS` when they are ready.
"""

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
from checkpoints.verification.base import TAMPERED, Examiner, Fault, Subject
from checkpoints.verification.erasures import erasures
from checkpoints.verification.journal import journal
from checkpoints.verification.kept_by_people import kept_by_people
from checkpoints.verification.lines import departures
from checkpoints.verification.log import log
from checkpoints.verification.memory import remembered
from checkpoints.verification.notes import noted
from checkpoints.verification.pending_writes import held_writes
from checkpoints.verification.removed_history import removed_history
from checkpoints.verification.run import brought_in, ended, run_row, stands
from checkpoints.verification.timeline import timeline
from checkpoints.verification.uploads import files_named, uploaded
from orchestrator.engine.errors import PayloadLost, UnknownThing, WrongKey

__all__ = ["EXAMINERS", "TAMPERED", "Examiner", "Fault", "Subject", "audit", "verify_checkpoints", "verify_run"]

MOST_FAULTS = 100
TRIES = 3

EXAMINERS: list[Examiner] = [
    run_row, erasures, brought_in, log, departures, timeline, journal, held_writes, remembered, noted,
    stands, ended, kept_by_people,
]  # fmt: skip
"""Who looks at the rows of a run, in order: the first fault found is the one that is named. Uploaded files follow."""


def verify_run(run_id: UUID | str, *, most: int = MOST_FAULTS) -> list[Fault]:
    """What is wrong with a run, the first place first, at most so many; empty where all is as it was written.

    Raises `UnknownThing`. A run that goes on meanwhile is looked at again, in the end under its lock. Uploaded files
    are read once, and never under the lock: their bytes and what names them do not change while a run goes on.
    """
    checked_number(most, "most", least=1)
    subject, faults, files = _rows_examined(uuid_of(run_id, "run"), most, EXAMINERS)
    return list(islice(chain(faults, uploaded(subject, files)), most))


def verify_checkpoints(run_id: UUID) -> Fault | None:
    """The first fault of a run's row, its lines, its checkpoints, holds and pins; None where these are as they were
    written. Whoever removes some of them asks first. Raises `UnknownThing`.
    """
    _, faults, _ = _rows_examined(run_id, 1, [run_row, departures, timeline, kept_by_people])
    return faults[0] if faults else None


Examined = tuple[Subject, list[Fault], list[dict[str, Any]]]
"""A run, the faults of its rows, and the references to files in its input."""


def _rows_examined(run_id: UUID, most: int, examiners: list[Examiner]) -> Examined:
    for _ in range(TRIES):
        run = _row(Run.objects.all(), run_id)
        found = _examined(run, most, examiners)
        if not found[1] or not (_moved(run) or _may_be_elsewhere(found[1])):
            return found
    with transaction.atomic():
        return _examined(_row(Run.objects.select_for_update(), run_id), most, examiners)


def _row(runs: "QuerySet[Run]", run_id: UUID) -> Run:
    run = runs.filter(id=run_id).first()
    if run is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    return run


def _examined(run: Run, most: int, examiners: list[Examiner]) -> Examined:
    protection = protection_of(run)
    try:
        protection.digest(b"")
    except WrongKey as error:
        subject = Subject(run, protection)
        return subject, [subject.refused(run, error)], []
    # A run that says of itself that nothing was erased is held to what its rows were hashed as.
    erased = ErasedRows.of_run(run.id) if run.erasure is not None else ErasedRows.none()
    subject = Subject(run, protection, removed_history(run.id, protection), erased)
    faults = list(islice((fault for examine in examiners for fault in examine(subject)), most))
    return subject, faults, files_named(subject)


def _moved(run: Run) -> bool:
    """Whether somebody has written to the run since it was read: what was found may be two states mixed."""
    now = Run.objects.filter(id=run.id).values_list("event_seq", "head", "epoch", "wakes", "erasure").first()
    return now != (run.event_seq, run.head, run.epoch, run.wakes, run.erasure)


def _may_be_elsewhere(faults: list[Fault]) -> bool:
    """Whether bytes were not there that a rotation of keys may have put under another name since the row was read."""
    return any(fault.code == PayloadLost.code_of_class for fault in faults)
