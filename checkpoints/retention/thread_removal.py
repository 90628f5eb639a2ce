"""Removing a thread of another engine as a whole, because its program asks for it: by
the rules of every other removal, at once, whatever its age.
"""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.retention.kept_points import WITH_RUN, WORDS, classified
from checkpoints.retention.rights import require_manager
from checkpoints.retention.rule import Rule
from checkpoints.retention.stretches import RemovedRows
from checkpoints.retention.whole_runs import remove_run
from checkpoints.threads import is_thread
from checkpoints.verification import verify_run
from orchestrator.engine.errors import TamperedRow, UnknownThing, WrongStatus


def remove_thread(
    run: Run,
    *,
    by: Any = None,
) -> None:
    """Remove a thread with all that hangs on it; the audit log keeps that there was one.
    Does nothing for one that is gone. `by` None is the system.

    Raises `WrongStatus` if something keeps it (a hold, a pin, a fork, that it was
    imported), `TamperedRow` where it does not verify, `Forbidden`.
    """
    require_manager(by)
    if not is_thread(run):
        raise WrongStatus(f"run {run.key} is no thread", run=str(run.id))
    rule = _rule_without_age(run)
    try:
        # A row that was changed by hand must not be removed silently.
        for fault in verify_run(run.id, most=1):
            message = f"thread {run.key} does not verify, so it stays: {fault.reason}"
            raise TamperedRow(message, run=str(run.id), row=fault.what)
        removed = remove_run(rule, run.id, by=by, archived=None, inside=_report)
    except UnknownThing:
        return
    if removed is None:
        raise WrongStatus(
            f"thread {run.key} stays: {_reason(rule, run)}",
            run=str(run.id),
            status=run.status,
        )


def _rule_without_age(
    run: Run,
) -> Rule:
    # The clocks of two hosts may differ; a day is more than they do.
    soon = timezone.now() + timedelta(days=1)
    statuses = {}
    for status in Status:
        if status != Status.TAMPERED:
            statuses[str(status)] = soon
    return Rule(
        graph=run.graph,
        now=soon,
        keep_last=None,
        older={},
        ended=statuses,
        archive=False,
    )


def _reason(
    rule: Rule,
    run: Run,
) -> str:
    rows = classified(rule).filter(run=run.id)
    words = list(rows.values_list("why", flat=True).distinct())
    if not words or WITH_RUN in words:
        return "it went on meanwhile"

    # What keeps one row of it says more than that it is a thread.
    words.sort(key=_is_of_every_thread)
    return WORDS[words[0]]


def _is_of_every_thread(
    word: str,
) -> bool:
    return word in ("head", "thread", "waits")


def _report(
    removed: RemovedRows,
) -> None:
    """Report nothing: no job waits for it."""
