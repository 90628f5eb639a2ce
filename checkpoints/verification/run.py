"""The run's own row: its seal, the payloads in it, and whether it has ended as its log says."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.utils import timezone

from checkpoints.core.status import ENDS, Status
from checkpoints.models import BundleImport, Run, RunEvent
from checkpoints.sealing import run_row as run_row_seal
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine.errors import CountersignError, WrongKey

AT_ONCE = timedelta(seconds=0.5)
"""Between a run's end and the line that says so."""
LONGEST_PAUSE = timedelta(days=1)
"""Before a queued run that was begun is due again; the product itself lets one rest for minutes."""
_STOPPED = frozenset({Status.FAILED, Status.UNKNOWN, Status.INCOMPATIBLE})
"""Statuses with an error that the log names as well."""
_LOGGED = frozenset({*_STOPPED, Status.WAITING})
"""Statuses to which only a line of the log leads; a fork may be paused from its beginning on."""
_RESTS = tuple(f"run_{status}" for status in (*_LOGGED, Status.PAUSED))


def run_row(subject: Subject) -> Iterator[Fault]:
    """The seal of the row, and the payloads that the seal leaves out."""
    run = subject.run
    try:
        run_row_seal.verify_run_row(run)
    except CountersignError as error:
        yield subject.refused(run, error)
        return
    try:
        if not subject.is_hashed(run, "input", subject.payload(run, "input"), run.input_hash):
            yield subject.fault(run, "has another input than it was started with")
        # Why it stopped and what it reports may be under a key that was there for a while only; nothing rests on them.
        for column in ("error", "progress"):
            sealed_rows.require_protection(run, column, bytes(getattr(run, column)), subject.protection)
    except CountersignError as error:
        yield subject.refused(run, error)


def brought_in(subject: Subject) -> Iterator[Fault]:
    """Where an imported run comes from is written down and sealed; of another run nothing is."""
    rows = list(BundleImport.objects.filter(run=subject.run.id))
    yield from filter(None, map(subject.seal_of, rows))
    if subject.run.imported and not rows:
        yield subject.gone(BundleImport, f"{subject.run.id}")
    elif rows and not subject.run.imported:
        yield subject.fault(rows[0], "is of a run that was not imported")


def stands(subject: Subject) -> Iterator[Fault]:
    """Where a run says that it stands is what its log says: nobody parked it where no worker and no person looks."""
    run = subject.run
    if run.status not in set(Status):
        yield subject.fault(run, f"has the status {run.status!r}, which is none")
        return
    if run.status == Status.RUNNING and run.lease_until is None:
        yield subject.fault(run, "is running, but no worker has a lease on it")
    if _is_put_off(run):
        yield subject.fault(run, f"is queued, but not before {run.due_at}, which nobody said")
    line = _last_line(subject, *_RESTS)
    rests = line.type.removeprefix("run_") if line else ""
    if run.status == Status.PAUSED and rests not in ("", Status.PAUSED):
        yield subject.fault(run, f"is {run.status}, but its log says {rests}")
    elif run.status in _LOGGED and rests != run.status and not (line is None and subject.removed.events):
        yield subject.fault(run, f"is {run.status}, but its log says {rests or 'no such thing'}")


def _is_put_off(run: Run) -> bool:
    """Return whether a queued run that was begun is due so late that no worker of ours put it there. When a run that
    was never begun is due is for whoever starts it to say.
    """
    if run.status != Status.QUEUED or run.started_at is None or run.due_at is None:
        return False
    return run.due_at > timezone.now() + LONGEST_PAUSE


def ended(subject: Subject) -> Iterator[Fault]:
    """A run that has ended says so in its log, and one that has not does not; when it ended, why it stopped and that
    somebody asked to cancel it stand there too.
    """
    run = subject.run
    types = [f"run_{end}" for end in ENDS]
    line = _last_line(subject, *types)
    last = line.type if line else None
    if run.status in ENDS and last != f"run_{run.status}":
        yield subject.fault(run, f"is {run.status}, but its log does not say so")
    elif last and run.status not in (*ENDS, Status.TAMPERED):
        yield subject.fault(run, f"is {run.status}, but its log says {last}")
    elif line and run.status in ENDS and (run.ended_at is None or abs(run.ended_at - line.at) > AT_ONCE):
        yield subject.fault(run, f"says that it ended at {run.ended_at}, but it was at {line.at}")
    elif run.ended_at is not None and run.status not in (*ENDS, Status.TAMPERED):
        yield subject.fault(run, f"is {run.status}, but says that it ended at {run.ended_at}")
    yield from _stopped(subject)
    yield from _cancelled(subject)


def _last_line(subject: Subject, *types: str) -> RunEvent | None:
    """The last line of these types since the run's newest line began: what was so before is over."""
    found = RunEvent.objects.filter(run=subject.run.id, type__in=[*types, "line_begun"]).order_by("-seq").first()
    return found if found is not None and found.type in types else None


def _facts(subject: Subject, line: RunEvent) -> dict[str, Any]:
    """What a line says; nothing where it cannot be read, which the log's own examiner has named."""
    return facts_of(subject, line) or {}


def _stopped(subject: Subject) -> Iterator[Fault]:
    """Why a run stopped is what its log says of that; one that goes on, or has ended, has no error."""
    run = subject.run
    if run.status == Status.TAMPERED:
        return  # of which nothing is logged
    line = _last_line(subject, f"run_{run.status}") if run.status in _STOPPED else None
    logged = _facts(subject, line) if line else {}
    try:
        kept = sealed_columns.read_value(run, "error") or {}
    except WrongKey:
        kept = {}  # it may be under a key that was there for a while only; then its code alone is compared
    except CountersignError as error:
        yield subject.refused(run, error)
        return
    now = (run.error_code, kept.get("message"))
    if run.status not in _STOPPED and bytes(run.error):
        yield subject.fault(run, f"is {run.status}, but says why it stopped")
    elif run.error_code != logged.get("code", "") or (kept and now != (logged.get("code"), logged.get("message"))):
        yield subject.fault(run, f"says {now[0] or 'no error'}: {now[1]}, but its log says {logged.get('message')}")


def _cancelled(subject: Subject) -> Iterator[Fault]:
    """Who asked to cancel a run is in its log, and when; it is not cancelled without that."""
    run, line = subject.run, _last_line(subject, "cancel_requested")
    if line is None and run.status in ENDS and subject.removed.events:
        return  # of a run that can still be cancelled the line is there
    if (line is None) != (run.cancel_at is None):
        asked = f"asks to be cancelled since {run.cancel_at}" if run.cancel_at else "does not ask to be cancelled"
        yield subject.fault(run, f"{asked}, but its log says otherwise")
    elif line is not None and run.cancel_at is not None:
        at = _facts(subject, line).get("cancel_at")
        if at is not None and at != run.cancel_at.isoformat():
            yield subject.fault(run, f"asks to be cancelled since {run.cancel_at}, but its log says {at}")
