"""Examines the row of a run itself: its seal, its payloads, and whether its position,
stop and end match its log.
"""

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
"""The longest time between the end of a run and the line that records it."""
LONGEST_PAUSE = timedelta(days=1)
"""The longest time before a queued run that has started is due again; the product
itself lets one rest for minutes.
"""
_STOPPED = frozenset({Status.FAILED, Status.UNKNOWN, Status.INCOMPATIBLE})
"""Statuses with an error that the log names as well."""
_LOGGED = frozenset({*_STOPPED, Status.WAITING})
"""Statuses that a run reaches only with a line in its log. `paused` is not among them:
a fork may be paused from its first moment on.
"""
_RESTS = tuple(f"run_{status}" for status in (*_LOGGED, Status.PAUSED))


def run_row(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of the row's seal and of the payloads that the seal leaves out."""
    run = subject.run
    try:
        run_row_seal.verify_run_row(run)
    except CountersignError as error:
        yield subject.refused(run, error)
        return
    try:
        input_ = subject.payload(run, "input")
        if not subject.is_hashed(run, "input", input_, run.input_hash):
            yield subject.fault(run, "has another input than it was started with")

        # The error and the progress may be under a key that was there only for a while,
        # and nothing rests on them: how they are encrypted must be right, not what they
        # hold.
        for column in ("error", "progress"):
            stored = bytes(getattr(run, column))
            sealed_rows.require_protection(run, column, stored, subject.protection)
    except CountersignError as error:
        yield subject.refused(run, error)


def import_record(subject: Subject) -> Iterator[Fault]:
    """Yield a fault unless an imported run has a sealed record of where it comes from,
    and another run has none.
    """
    rows = list(BundleImport.objects.filter(run=subject.run.id))
    for row in rows:
        fault = subject.seal_of(row)
        if fault is not None:
            yield fault
    if subject.run.imported and not rows:
        yield subject.missing_row(BundleImport, f"{subject.run.id}")
    elif rows and not subject.run.imported:
        yield subject.fault(rows[0], "is of a run that was not imported")


def recorded_status(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of where the row says that the run stands: it may have been
    parked where neither a worker nor a person looks.
    """
    run = subject.run
    if run.status not in set(Status):
        yield subject.fault(run, f"has the status {run.status!r}, which is none")
        return
    # A claim looks for leases that have run out, so without one no worker takes the run
    # again.
    if run.status == Status.RUNNING and run.lease_until is None:
        yield subject.fault(run, "is running, but no worker has a lease on it")
    if _is_put_off(run):
        yield subject.fault(
            run, f"is queued, but not before {run.due_at}, which nobody said"
        )
    yield from _faults_of_rest(subject)


def _is_put_off(run: Run) -> bool:
    """Return whether a queued run that has started is due so late that no worker of
    ours put it there. A run that has not started is due whenever its starter chose.
    """
    if run.status != Status.QUEUED or run.started_at is None or run.due_at is None:
        return False
    return run.due_at > timezone.now() + LONGEST_PAUSE


def _faults_of_rest(subject: Subject) -> Iterator[Fault]:
    """Yield a fault if the run rests in another status than its log says."""
    run = subject.run
    line = _last_line(subject, *_RESTS)
    logged_status = ""
    if line is not None:
        logged_status = line.type.removeprefix("run_")

    if run.status == Status.PAUSED:
        agreeing = {"", Status.PAUSED}
        # One that waited when it was exported is shown as paused where it came in.
        if run.imported:
            agreeing.add(Status.WAITING)
        if logged_status not in agreeing:
            yield subject.fault(
                run, f"is {run.status}, but its log says {logged_status}"
            )
    elif run.status in _LOGGED and logged_status != run.status:
        # The line that recorded the status may be among the removed ones.
        if line is None and subject.removed.events:
            return
        yield subject.fault(
            run, f"is {run.status}, but its log says {logged_status or 'no such thing'}"
        )


def recorded_end(subject: Subject) -> Iterator[Fault]:
    """Yield a fault unless the log records an end exactly where the run has ended, and
    the same time, reason and request to cancel as the row.
    """
    run = subject.run
    line = _last_line(subject, *(f"run_{end}" for end in ENDS))
    if run.status in ENDS:
        yield from _faults_of_ended_run(subject, line)
    # A run may be found tampered with before its end or after it.
    elif run.status != Status.TAMPERED:
        yield from _faults_of_unended_run(subject, line)
    yield from _faults_of_stop(subject)
    yield from _faults_of_cancellation(subject)


def _faults_of_ended_run(subject: Subject, line: RunEvent | None) -> Iterator[Fault]:
    run = subject.run
    if line is None or line.type != f"run_{run.status}":
        yield subject.fault(run, f"is {run.status}, but its log does not say so")
    elif run.ended_at is None or abs(run.ended_at - line.at) > AT_ONCE:
        yield subject.fault(
            run, f"says that it ended at {run.ended_at}, but it was at {line.at}"
        )


def _faults_of_unended_run(subject: Subject, line: RunEvent | None) -> Iterator[Fault]:
    run = subject.run
    if line is not None:
        yield subject.fault(run, f"is {run.status}, but its log says {line.type}")
    elif run.ended_at is not None:
        yield subject.fault(
            run, f"is {run.status}, but says that it ended at {run.ended_at}"
        )


def _last_line(subject: Subject, *types: str) -> RunEvent | None:
    """Return the last line of these types since the newest line of the run began: what
    the log says of earlier ones is over.
    """
    last = (
        RunEvent.objects.filter(run=subject.run.id, type__in=[*types, "line_begun"])
        .order_by("-seq")
        .first()
    )
    if last is None or last.type not in types:
        return None
    return last


def _facts(subject: Subject, line: RunEvent | None) -> dict[str, Any]:
    """Return the facts of a log entry; empty if it cannot be read, which the log's own
    examiner reports.
    """
    if line is None:
        return {}
    return facts_of(subject, line) or {}


def _faults_of_stop(subject: Subject) -> Iterator[Fault]:
    """Yield a fault if the row gives another reason for having stopped than the log; a
    run that goes on, or has ended, has no error.
    """
    run = subject.run
    # Nothing is logged of a run that stopped because it was tampered with.
    if run.status == Status.TAMPERED:
        return
    logged = _logged_stop(subject)
    try:
        error = sealed_columns.read_value(run, "error")
    except WrongKey:
        # The error may be under a key that was there only for a while; then its code
        # alone is compared.
        error = None
    except CountersignError as refusal:
        yield subject.refused(run, refusal)
        return

    if run.status not in _STOPPED and bytes(run.error):
        yield subject.fault(run, f"is {run.status}, but says why it stopped")
        return
    # No seal covers the error, so that it may be any value.
    if error is not None and not isinstance(error, dict):
        yield subject.fault(run, "holds an error that is none")
    else:
        yield from _faults_of_error(subject, error or {}, logged)


def _faults_of_error(
    subject: Subject, error: dict[str, Any], logged: dict[str, Any]
) -> Iterator[Fault]:
    """Yield a fault if the log has another error than this one of the run's row."""
    run = subject.run
    if not _is_logged(run, error, logged):
        yield subject.fault(
            run,
            f"says {run.error_code or 'no error'}: {error.get('message')},"
            f" but its log says {logged.get('message')}",
        )


def _logged_stop(subject: Subject) -> dict[str, Any]:
    """Return the facts of the line that records why the run stopped; none of a run that
    has not.
    """
    status = subject.run.status
    if status not in _STOPPED:
        return {}
    return _facts(subject, _last_line(subject, f"run_{status}"))


def _is_logged(run: Run, error: dict[str, Any], logged: dict[str, Any]) -> bool:
    """Return whether the log has the run's error; without a readable one, its code."""
    if run.error_code != logged.get("code", ""):
        return False
    if not error:
        return True
    stored = (run.error_code, error.get("message"))
    return stored == (logged.get("code"), logged.get("message"))


def _faults_of_cancellation(subject: Subject) -> Iterator[Fault]:
    """Yield a fault unless the row asks for a cancellation exactly where the log does,
    and since the same time.
    """
    run = subject.run
    line = _last_line(subject, "cancel_requested")
    # A run that has ended may have lost this entry to retention; one that can still be
    # cancelled still has it.
    if line is None and run.status in ENDS and subject.removed.events:
        return
    if line is None:
        if run.cancel_at is not None:
            yield subject.fault(
                run,
                f"has been asked to cancel since {run.cancel_at},"
                " but its log says otherwise",
            )
        return
    if run.cancel_at is None:
        yield subject.fault(
            run, "has not been asked to cancel, but its log says otherwise"
        )
        return
    logged_at = _facts(subject, line).get("cancel_at")
    if logged_at is not None and logged_at != run.cancel_at.isoformat():
        yield subject.fault(
            run,
            f"has been asked to cancel since {run.cancel_at},"
            f" but its log says {logged_at}",
        )
