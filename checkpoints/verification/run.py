"""The run's own row: its seal, the payloads in it, and whether it has ended as its log says."""

from collections.abc import Iterator

from checkpoints.core.status import ENDS, Status
from checkpoints.models import RunEvent
from checkpoints.sealing import run_row as run_row_seal
from checkpoints.sealing import sealed_rows
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.errors import CountersignError


def run_row(subject: Subject) -> Iterator[Fault]:
    """The seal of the row, and the payloads that the seal leaves out."""
    run = subject.run
    try:
        run_row_seal.verify_run_row(run)
    except CountersignError as error:
        yield subject.refused(run, error)
        return
    try:
        if subject.protection.digest(subject.payload(run, "input")) != run.input_hash:
            yield subject.fault(run, "has another input than it was started with")
        # Why it stopped and what it reports may be under a key that was there for a while only; nothing rests on them.
        for column in ("error", "progress"):
            sealed_rows.require_protection(run, column, bytes(getattr(run, column)), subject.protection)
    except CountersignError as error:
        yield subject.refused(run, error)


def ended(subject: Subject) -> Iterator[Fault]:
    """A run that has ended says so in its log, and one that has not does not."""
    run = subject.run
    types = [f"run_{end}" for end in ENDS]
    last = RunEvent.objects.filter(run=run.id, type__in=types).order_by("-seq").values_list("type", flat=True).first()
    if run.status in ENDS and last != f"run_{run.status}":
        yield subject.fault(run, f"is {run.status}, but its log does not say so")
    elif last and run.status not in (*ENDS, Status.TAMPERED) and run.line == 1:
        yield subject.fault(run, f"is {run.status}, but its log says {last}")
