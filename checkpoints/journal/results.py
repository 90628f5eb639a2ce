"""The journal of write and external tasks: an intent before, a result after. The
executor writes it, recovery reads it.

An intent rides with its `started` line in one commit. A result commit checks the epoch
under the row's lock and writes no line. A result is accepted only for the attempt whose
intent is open; one that comes too late is kept as evidence.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet, Subquery, functions
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core import codec
from checkpoints.core.status import Status
from checkpoints.db import bulk, query_cache, statements
from checkpoints.db.rows import new_row
from checkpoints.journal import intents as intent_log
from checkpoints.journal.erased_results import drop_erased
from checkpoints.journal.intents import Intent
from checkpoints.ledger import commit as ledger
from checkpoints.models import (
    Checkpoint,
    LateResult,
    Run,
    RunEvent,
    TaskResult,
    checkpoint,
)
from checkpoints.models.fields import of_tasks
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Lease
from checkpoints.queue.processes import this_process
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import Task
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

log = structlog.get_logger(__name__)


@frozen
class Entry:
    """The newest attempt of a task, as it is recorded."""

    task: Task
    attempt: int
    outcome: str
    input_hash: str
    output: dict[str, Any] | None
    error: dict[str, Any] | None
    took_ms: int
    settled: bool


@frozen
class Ending:
    """The end of an attempt. `output` is JSON of the engine's Output, `error` is {type,
    message, traceback}. `intent` is its row as `write_intents` returned it, if that was
    in this process.
    """

    task: Task
    attempt: int
    outcome: str
    output: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    took_ms: int = 0
    thread_ended: bool = True
    intent: TaskResult | None = None


def entries_for_takeover(lease: Lease, head: ledger.Head) -> dict[Task, Entry]:
    """Return `entries` for a worker that takes the run over. Raises `TamperedRow` also
    where an attempt has no row although the log records that it began: without its row
    the effect would be made again.
    """
    current = entries(lease)
    # A superstep that was cut off is still in progress where the run then went on with
    # another version, under signatures.
    is_cut_off = head.payload.open or head.source in checkpoint.BETWEEN
    # Each intent has a line in the log: if no line follows the head, no intent can be
    # missing.
    if is_cut_off or lease.end.seq > head.logged:
        _require_begun(lease)
    return current


def _require_begun(lease: Lease) -> None:
    """Raise `TamperedRow` unless every attempt that began since the last whole
    superstep, or on this line, has its row. Two queries.
    """
    begun = _attempts_begun(lease)
    if not begun:
        return
    rows = TaskResult.objects.filter(
        run=lease.id,
        line=lease.line,
        node__in={Task.parse(task).node for task in begun},
    )
    stored = Counter(row.task for row in rows.only("node", "visit", "index"))
    for task, number in begun.items():
        if stored.get(task, 0) < number:
            raise TamperedRow(
                f"{number} attempts of {task} began, "
                f"and {stored.get(task, 0)} are there",
                task=task,
            )


def _attempts_begun(lease: Lease) -> "Counter[str]":
    """Return how many attempts of each task began since the last whole superstep, or on
    this line. One query. Raises `TamperedRow`, `WrongKey`.
    """
    rows = query_cache.select(RunEvent, _query_begun, lease.id, lease.line)
    # A line may name any number of tasks, so that it is verified before they are listed.
    sealed_rows.verify_rows(rows, lease.protection)
    attempts: Counter[str] = Counter()
    try:
        for row in rows:
            attempts.update(map(str, intent_log.tasks_of(row.task)))
    except ValueError as error:
        raise TamperedRow(
            f"a line of run {lease.key} does not say what began: {error}",
            run=str(lease.id),
        ) from error
    return attempts


def _query_begun(run: UUID, line: int) -> "QuerySet[RunEvent]":
    is_whole = Q(committed=True) | Q(source__in=checkpoint.BEGINNINGS)
    own_checkpoints = Checkpoint.objects.filter(is_whole, run=run, line=line)
    newest_whole = own_checkpoints.order_by("-seq").values("event_seq")[:1]
    # Even if the first checkpoints of a line were removed, the log still has its
    # beginning.
    beginnings = RunEvent.objects.filter(run=run, type="line_begun")
    newest_beginning = beginnings.order_by("-seq").values("seq")[:1]
    since = functions.Coalesce(Subquery(newest_whole), Subquery(newest_beginning), 0)
    return RunEvent.objects.filter(run=run, type="effects_started", seq__gt=since)


def entries(lease: Lease) -> dict[Task, Entry]:
    """Return the newest attempt of each task of the superstep in progress: those that
    no checkpoint lists yet. One query.

    Raises `TamperedRow` and `WrongKey`: a result that does not verify is not used.
    """
    rows = query_cache.select(TaskResult, _in_progress, lease.id, lease.line)
    sealed_rows.verify_rows(rows, lease.protection)
    # Rows are in the order of attempts, so the newest one of a task stays.
    return {Task(row.node, row.visit, row.index): _entry(row) for row in rows}


def _in_progress(run: UUID, line: int) -> "QuerySet[TaskResult]":
    return TaskResult.objects.filter(run=run, line=line, seq__isnull=True).order_by(
        "attempt"
    )


def _entry(row: TaskResult) -> Entry:
    return Entry(
        task=Task(row.node, row.visit, row.index),
        attempt=row.attempt,
        outcome=row.outcome,
        input_hash=row.input_hash,
        output=sealed_columns.read_value(row, "output"),
        error=sealed_columns.read_value(row, "error"),
        took_ms=row.took_ms,
        settled=bool(bytes(row.settled_reason)),
    )


def write_intents(
    lease: Lease,
    intents: Sequence[Intent],
    *,
    require: Callable[[], None] | None = None,
) -> dict[Task, TaskResult]:
    """Write the intents of a superstep with their lines in one commit, and return their
    rows. The lease has its full length afterwards. `require` is called first in the
    commit; what it raises leaves nothing written.

    Earlier attempts of these tasks that are still open are closed as failed: their
    result, should it arrive, is late. Raises `StaleLease`. If the log moved in the
    meantime, the lease follows it, and its `moved` is set.
    """
    events = intent_log.intent_events(intents)
    rows = _intent_rows(lease, intents)
    tasks_begun_before = [intent.task for intent in intents if intent.attempt > 1]

    def insert() -> None:
        if require is not None:
            require()
        # In the commit of the next attempt, so that a task never has two that are open.
        _end(lease, tasks_begun_before, [Outcome.OPEN], Outcome.FAILED)
        bulk.insert_all(rows, _OF_AN_INTENT)

    while True:
        try:
            ledger.append_events(lease, events, inside=insert)
        except ledger.ConcurrentUpdate:
            ledger.refresh_lease(lease)
            lease.moved = True
        else:
            tasks = [intent.task for intent in intents]
            return dict(zip(tasks, rows, strict=True))


_OF_AN_INTENT = (
    "node",
    "visit",
    "index",
    "attempt",
    "effect",
    "input_hash",
    "over_at",
    "seal",
)
"""The fields in which the intents of one commit differ."""


def _intent_rows(lease: Lease, intents: Sequence[Intent]) -> Sequence[TaskResult]:
    now = lease.now()
    process = this_process()
    lease_seconds = conf().lease_seconds
    common = {
        "run_id": lease.id,
        "line": lease.line,
        "epoch": lease.epoch,
        "worker": lease.worker,
        "host": process.host,
        "pid_space": process.pid_space,
        "pid": process.pid,
        "process_started": process.started,
        "superstep": lease.superstep + 1,
        "intent_at": now,
    }
    rows = []
    for intent in intents:
        # After lease and timeout only a frozen process can still act.
        over_at = now + timedelta(seconds=lease_seconds + intent.timeout)
        row = new_row(
            TaskResult,
            **common,
            node=intent.task.node,
            visit=intent.task.visit,
            index=intent.task.index,
            attempt=intent.attempt,
            effect=intent.effect,
            input_hash=intent.input_hash,
            over_at=over_at,
        )
        rows.append(row)
    return sealed_rows.seal_and_encrypt(rows, lease.protection)


def write_results(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """Write the endings that are ready in one commit. Returns those that were too late:
    their attempt was no longer open.

    Raises `StaleLease` if another epoch has the run, `TamperedRow` if an intent does
    not verify; then every ending is kept as evidence.
    """
    try:
        if all(ending.intent is not None and ending.thread_ended for ending in endings):
            # One statement writes endings of this process, unless their rows changed.
            with suppress(_NotAsBegun):
                return _recorded(lease, endings, _close_as_begun)
        return _recorded(lease, endings, _close)
    except (TamperedRow, WrongKey):
        # Evidence for the person who settles what came of the effect.
        keep_late_results(lease, endings)
        raise


Close = Callable[[Lease, Sequence[Ending]], list[Ending]]
"""Writes endings to their open intents, in the caller's transaction; returns those
whose attempt is no longer open.
"""


def _recorded(
    lease: Lease,
    endings: Sequence[Ending],
    close: Close,
) -> list[Ending]:
    with transaction.atomic():
        # Locked, so that no other worker takes the run over before this is committed.
        is_current = query_cache.exists(_locked, lease.id, lease.epoch)
        late = list(endings)
        if is_current:
            late = close(lease, endings)
        keep_late_results(lease, late)
    # After the transaction, so that the evidence stays.
    if not is_current:
        raise StaleLease(
            "another worker has this run", run=str(lease.id), epoch=lease.epoch
        )
    return late


class _NotAsBegun(Exception):
    """An intent is no longer what this process wrote: its row must be read."""


def _close_as_begun(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """Write endings in one statement: a row whose fields are all as this process sealed
    them verifies, and is open. Raises `_NotAsBegun`.
    """
    before = [ending.intent for ending in endings if ending.intent is not None]
    now = timezone.now()
    after = []
    for row, ending in zip(before, endings, strict=True):
        after.append(new_row(TaskResult, **(vars(row) | _ended(ending, now))))
    # Nothing in the intents was encrypted, because all their payloads are empty.
    sealed_rows.seal_and_encrypt(after, lease.protection)
    number_updated = bulk.update_all(
        before,
        after,
        own=_OF_AN_INTENT,
        names=_OF_AN_ENDING,
        alike=_OF_ALL,
    )
    if number_updated != len(endings):
        raise _NotAsBegun
    return []


_OF_AN_ENDING = ("outcome", "output", "error", "took_ms", "seal")
_OF_ALL = ("result_at", "thread_ended_at", "seal_key")
"""The fields that change when attempts end: those of each, and those in which endings
of one commit are alike.
"""


def _locked(run: UUID, epoch: int) -> "QuerySet[Run, Any]":
    return (
        Run.objects.select_for_update()
        .filter(id=run, epoch=epoch, status=Status.RUNNING)
        .order_by()
        .values("id")
    )


def _open(run: UUID, line: int, *tasks: str | int) -> "QuerySet[TaskResult]":
    """Return the open intents of tasks, each passed as node, visit and index."""
    of_tasks = Q(pk__in=[])
    for node, visit, index in zip(tasks[::3], tasks[1::3], tasks[2::3], strict=True):
        # Run and line in each, so that each is one look into the index however long the
        # line is.
        of_tasks |= Q(run=run, line=line, node=node, visit=visit, index=index)
    return TaskResult.objects.filter(of_tasks, outcome=Outcome.OPEN).order_by()


def _close(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """Write endings to their open intents, in the caller's transaction, in two
    statements. Returns those whose attempt is no longer open.
    """
    parameters: list[str | int] = []
    for ending in endings:
        task = ending.task
        parameters += [task.node, task.visit, task.index]
    rows = query_cache.select(TaskResult, _open, lease.id, lease.line, *parameters)
    open_intents = {}
    for row in rows:
        open_intents[Task(row.node, row.visit, row.index), row.attempt] = row

    # Taken out, so that of two endings of one attempt only the first is written to it.
    pairs = []
    for ending in endings:
        intent = open_intents.pop((ending.task, ending.attempt), None)
        pairs.append((ending, intent))
    now = timezone.now()
    written = amend_results(
        [
            (intent, _ended(ending, now))
            for ending, intent in pairs
            if intent is not None
        ],
        lease.protection,
    )
    # An intent may have been closed since it was read.
    late = []
    for ending, intent in pairs:
        if intent is None or intent.pk not in written:
            late.append(ending)
    return late


def _ended(ending: Ending, now: datetime) -> dict[str, Any]:
    return {
        "outcome": ending.outcome,
        "output": _packed(ending.output),
        "error": _packed(ending.error),
        "result_at": now,
        "took_ms": ending.took_ms,
        "thread_ended_at": now if ending.thread_ended else None,
    }


def _packed(value: dict[str, Any] | None) -> bytes:
    """Return the content of a payload column for an output or an error. Both were made
    canonical where they arose.
    """
    if value is None:
        return b""
    return codec.pack(canonical.encode(value))


def amend_result(row: TaskResult, protection: Protection, **values: Any) -> bool:
    """Change a result that verifies and seal it again, in the caller's transaction.
    Payloads are passed packed and not encrypted.

    Returns False if its outcome has changed since it was read. Raises `TamperedRow`,
    `WrongKey`: a new seal on a row that does not verify would cover up how it was
    changed.
    """
    return bool(amend_results([(row, values)], protection))


def amend_results(
    changes: Sequence[tuple[TaskResult, dict[str, Any]]], protection: Protection
) -> set[int]:
    """Change several results as `amend_result` does, the same fields of each, in one
    statement. Returns the keys of the rows that were written. Raises as `amend_result`
    does; then none was.
    """
    names: list[str] = []
    rows = [row for row, _ in changes]
    # Taken before the rows change: a row is written only with the outcome it had.
    before = [row.outcome for row in rows]
    sealed_rows.verify_rows(rows, protection)
    for row, values in changes:
        names = sealed_rows.seal_again(row, protection, **values)
    return bulk.update_each(rows, names, was="outcome", before=before)


def run_atomically(
    lease: Lease,
    task: Task,
    attempt: int,
    work: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Do the node's work, write its result and, last, check the fence in one
    transaction, so that its work happens once or not at all.

    `work` returns the output as JSON. Raises what `work` raises, and `StaleLease` if
    the attempt or the lease is gone: in both cases nothing happened.
    """
    begun = timezone.now()
    with transaction.atomic():
        output = work()
        seconds = (timezone.now() - begun).total_seconds()
        took_ms = int(seconds * 1000)
        ending = Ending(task, attempt, Outcome.DONE, output, took_ms=took_ms)
        late = _close(lease, [ending])
        # This comes last, because it locks the run's row: nobody could sign while the
        # node works.
        held = {"id": lease.id, "epoch": lease.epoch, "status": Status.RUNNING}
        fenced = statements.update_returning(Run, held, ["id"], epoch=lease.epoch)
        if late or not fenced:
            raise StaleLease(
                "the attempt is over",
                run=str(lease.id),
                task=str(task),
                attempt=attempt,
            )
    return output


def keep_late_results(lease: Lease, endings: Sequence[Ending]) -> None:
    """Keep endings that are never applied, by the only insert without a fence. The
    attempts are marked as over.
    """
    if not endings:
        return
    rows = []
    of_attempts = Q(pk__in=[])
    for ending in endings:
        task = ending.task
        row = LateResult(
            run_id=lease.id,
            line=lease.line,
            node=task.node,
            visit=task.visit,
            index=task.index,
            attempt=ending.attempt,
            epoch=lease.epoch,
            output=_packed(ending.output),
            error=_packed(ending.error),
            at=timezone.now(),
        )
        rows.append(row)
        of_attempts |= Q(
            node=task.node,
            visit=task.visit,
            index=task.index,
            attempt=ending.attempt,
        )
    attempts = TaskResult.objects.filter(of_attempts, run=lease.id, line=lease.line)
    with transaction.atomic():
        # Before they are sealed: for an erased run, only tombstones are stored.
        drop_erased(lease, rows)
        sealed = sealed_rows.seal_and_encrypt(rows, lease.protection)
        statements.insert_rows(LateResult, sealed)
        _seal_thread_ended(lease.id, attempts, lease.protection)


def note_thread_ended(
    run: UUID,
    line: int,
    task: Task,
    attempt: int,
) -> None:
    """Note that the thread of an attempt has ended, and so can no longer act."""
    row = Run.objects.only("encrypted", "hash_key").get(id=run)
    attempts = _attempts_of(run, line, task).filter(attempt=attempt)
    with transaction.atomic():
        _seal_thread_ended(run, attempts, protection_of(row))


def _seal_thread_ended(
    run: UUID,
    attempts: "QuerySet[TaskResult]",
    protection: Protection,
) -> None:
    """Write that the threads of these attempts have ended. A row that does not verify
    stays as it is.
    """
    now = timezone.now()
    # The run is locked before its results, as everywhere: other code that seals a
    # result again has read it under this lock.
    list(Run.objects.select_for_update().filter(id=run).order_by().values_list("id"))
    for row in attempts.select_for_update().order_by("id"):
        try:
            amend_result(row, protection, thread_ended_at=now)
        except (TamperedRow, WrongKey) as error:
            log.warning(
                "thread_end_not_noted",
                row=sealed_rows.name_of(row),
                error=error.message,
            )


def mark_tasks_unknown(lease: Lease, tasks: Iterable[Task]) -> None:
    """Leave these tasks for a person to settle: open attempts, and results for another
    input. In the caller's transaction.
    """
    _end(lease, tasks, [Outcome.OPEN, Outcome.DONE], Outcome.UNKNOWN)


def _end(
    lease: Lease,
    tasks: Iterable[Task],
    outcomes: Sequence[Outcome],
    new_outcome: Outcome,
) -> None:
    """Change the outcome of the attempts of these tasks that have one of `outcomes`:
    one query and one statement.
    """
    ended_tasks = set(tasks)
    if not ended_tasks:
        return
    rows = TaskResult.objects.filter(
        run=lease.id,
        line=lease.line,
        outcome__in=outcomes,
        node__in={task.node for task in ended_tasks},
    )
    changes: list[tuple[TaskResult, dict[str, Any]]] = []
    for row in rows:
        if Task(row.node, row.visit, row.index) in ended_tasks:
            changes.append((row, {"outcome": new_outcome}))
    amend_results(changes, lease.protection)


def list_update(lease: Lease, seq: int, **only: str) -> statements.Update:
    """Return the update that notes which checkpoint lists the journaled results of the
    superstep in progress, for the transaction of its commit.
    """
    unlisted = {"run_id": lease.id, "line": lease.line, "seq": None}
    return statements.Update(TaskResult, {**unlisted, **only}, {"seq": seq})


def list_done_results(
    lease: Lease, seq: int, *, apart_from: Collection[Task] = ()
) -> None:
    """Note the checkpoint that lists only the results that are done, in the transaction
    that is open. Those of the tasks `apart_from` stay for the superstep in progress.
    """
    done = list_update(lease, seq, outcome=Outcome.DONE)
    if apart_from:
        others = TaskResult.objects.exclude(of_tasks(lease.id, lease.line, apart_from))
        others.filter(**done.where).update(**done.values)
        return
    statements.update_returning(TaskResult, done.where, ["id"], **done.values)


def _attempts_of(run: UUID, line: int, task: Task) -> "QuerySet[TaskResult]":
    return TaskResult.objects.filter(
        run=run,
        line=line,
        node=task.node,
        visit=task.visit,
        index=task.index,
    )
