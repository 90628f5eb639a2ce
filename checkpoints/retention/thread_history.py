"""Removing some checkpoints of a thread of another engine, because its program asks for
it: their rows, and the lines of the log that hold their writes. What goes leaves a gap
that is provable, as with every removal.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from checkpoints.audit import lines as audit_log
from checkpoints.core.status import Status
from checkpoints.ledger import locked_run
from checkpoints.models import Checkpoint, Pin, Run
from checkpoints.retention.holds import is_held
from checkpoints.retention.log_stretches import remove_lines
from checkpoints.retention.rights import require_manager
from checkpoints.retention.stretches import MOST, TRIES, RemovedRows, remove_chosen
from checkpoints.threads import is_thread, writer
from checkpoints.threads.reader import threads_of
from checkpoints.threads.removable import (
    Choose,
    Needs,
    Removable,
    latest_of_each,
    lines_without_rows,
    made_by_others,
    removable,
)
from checkpoints.verification import verify_run
from orchestrator.engine.errors import Erased, TamperedRow, UnknownThing, WrongStatus


def prune_threads(runs: Iterable[Run], *, needs: Needs, by: Any = None) -> None:
    """Remove all checkpoints of these threads but the latest of each namespace. `needs`
    returns the channels of a checkpoint that its engine rebuilds from earlier ones,
    which stay then; so do pinned ones. `by` None is the system.

    Raises, before anything goes, `WrongStatus` for a thread that is under a hold or
    tampered, `Erased`, `Forbidden`. Raises `TamperedRow` and `WrongKey` for a
    thread that does not verify; those before it have been pruned.
    """
    _remove(list(runs), latest_of_each, needs, by=by)


def remove_made_by(
    engine_runs: Collection[str], *, graph: str, needs: Needs, by: Any = None
) -> None:
    """Remove the checkpoints that these runs of another engine made, from all threads
    of a graph. Raises as `prune_threads` does, and `WrongStatus` for a thread that was
    ended and whose newest checkpoint would go.
    """
    runs = Run.objects.filter(id__in=threads_of(engine_runs), graph=graph)
    choose = partial(made_by_others, engine_runs=engine_runs)
    _remove(list(runs.filter(imported=False)), choose, needs, by=by)


def _remove(runs: Sequence[Run], choose: Choose, needs: Needs, *, by: Any) -> None:
    require_manager(by)
    for run in runs:
        _require_removable(run)
    for run in runs:
        try:
            _remove_all_from(run, choose, needs, by=by)
        # It was deleted in the meantime, with all of its checkpoints.
        except UnknownThing:
            continue


def _require_removable(run: Run) -> None:
    if not is_thread(run):
        raise WrongStatus(f"run {run.key} is no thread", run=str(run.id))
    if run.status == Status.TAMPERED:
        raise WrongStatus(
            f"thread {run.key} is tampered, so nothing of it goes",
            run=str(run.id),
            status=run.status,
        )
    if run.erasure is not None:
        raise Erased(f"values of thread {run.key} were erased", run=str(run.id))
    if is_held([run.id]):
        raise WrongStatus(
            f"thread {run.key} stays: its run is under a legal hold",
            run=str(run.id),
            status=run.status,
        )


def _remove_all_from(run: Run, choose: Choose, needs: Needs, *, by: Any) -> None:
    for _ in range(1 + TRIES):
        if _remove_from(run, choose, needs, by=by):
            return
    raise WrongStatus(
        f"thread {run.key} goes on while its history is removed", run=str(run.id)
    )


def _remove_from(run: Run, choose: Choose, needs: Needs, *, by: Any) -> bool:
    """Return whether all that goes has gone; not where lines came in the meantime."""
    pins = Pin.objects.filter(run=run.id, released_at=None)
    pinned = set(pins.values_list("checkpoint", flat=True))
    going = removable(run, choose, needs, pinned=pinned)
    if not going.rows and not going.lines:
        return True
    # A row that was changed by hand must not be removed silently.
    for fault in verify_run(run.id, most=1):
        raise TamperedRow(
            f"thread {run.key} does not verify, so nothing goes: {fault.reason}",
            run=str(run.id),
            row=fault.what,
        )
    if _move_head(run.id, going, by=by):
        # The checkpoint of the new head stays with that row alone.
        going = removable(run, choose, needs, pinned=pinned)
    by_name = by.get_username() if by else ""
    remove_next = partial(
        remove_chosen,
        partial(_rows_that_go, going),
        run.id,
        by_name=by_name,
        inside=_report,
    )
    removed = remove_next()
    while removed and removed.may_be_more:
        removed = remove_next()
    return _remove_lines(run.id, going, by=by)


def _move_head(run_id: UUID, going: Removable, *, by: Any) -> bool:
    """Move the head of a thread to the newest row that stays. This is done if its head
    is removed, or if lines after the one that saved its head are: none of those may be
    missing. Returns whether the head moved. In a thread that has ended such lines stay.
    Raises `WrongStatus` if its head would go.
    """
    with transaction.atomic():
        run = _locked(run_id)
        head = Checkpoint.objects.get(run=run.id, seq=run.head_seq)
        if head.id not in going.rows:
            is_behind = max(going.lines, default=0) < _first_needed(head)
            if is_behind or run.status != Status.WAITING:
                return False
        newest = going.staying[-1] if going.staying else None
        writer.move_head(run, newest, going.staying_names, by=by)
        return True


def _first_needed(head: Checkpoint) -> int:
    """Return the number of the first line of a thread that its head needs."""
    return head.event_seq - 1


def _rows_that_go(going: Removable, run: Run) -> list[tuple[int, int]]:
    _require_removable(run)
    rows = Checkpoint.objects.filter(run=run.id, id__in=going.rows)
    # A pin may have come since.
    pinned = Pin.objects.filter(run=run.id, released_at=None).values("checkpoint")
    rows = rows.exclude(id__in=pinned).exclude(seq=run.head_seq).order_by("-seq")
    return list(rows.values_list("seq", "stored_size")[:MOST])


def _remove_lines(run_id: UUID, going: Removable, *, by: Any) -> bool:
    """Remove the lines about rows that have gone. Returns False where the head must be
    moved for that, and then removes none.
    """
    with transaction.atomic():
        run = _locked(run_id)
        # Looked for again: writes, pins and checkpoints may have come since.
        lines = lines_without_rows(run)
        head = Checkpoint.objects.get(run=run.id, seq=run.head_seq)
        needed = {number for number in lines if number >= _first_needed(head)}
        if needed and run.status == Status.WAITING:
            return False
        by_name = by.get_username() if by else ""
        remove_lines(run, lines - needed, by_name=by_name)
        audit_log.record_act(
            "thread_pruned",
            run,
            actor=by,
            seq=run.event_seq,
            checkpoints=len(going.rows),
        )
    return True


def _locked(run_id: UUID) -> Run:
    run = locked_run.lock_run(run_id)
    _require_removable(run)
    return run


def _report(removed: RemovedRows) -> None:
    """Report nothing: no job waits for it."""
