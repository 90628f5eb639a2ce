"""The journal of write and external tasks: an intent before, a result after. The executor writes it, recovery reads it.

An intent rides with its `started` line in one commit. A result commit checks the epoch under the row's lock and writes
no line. A result is accepted only for the attempt whose intent is open; one that comes too late is kept as evidence.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
from checkpoints.models import Checkpoint, LateResult, Run, RunEvent, TaskResult, checkpoint
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Lease
from checkpoints.queue.processes import this_process
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import Task, canonical
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen

log = structlog.get_logger(__name__)


@frozen
class Entry:
    """What is known of the newest attempt of a task."""

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
    """How an attempt ended. `output` as JSON of the engine's Output, `error` as {type, message, traceback}. `intent` is
    its row as `write_intents` gave it, where that was in this process.
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
    """`entries` for whoever takes the run over. Raises `TamperedRow` also where an attempt has no row though the log
    says that it began: without its row the effect would be made again.
    """
    found = entries(lease)
    # A superstep that was cut off is in hand still where the run then went on with another version, under signatures.
    if lease.end.seq > head.logged or head.payload.open or head.source in checkpoint.BETWEEN:
        _require_begun(lease)
    return found


def _require_begun(lease: Lease) -> None:
    """Every attempt that began since the last whole superstep, or on this line, has its row. Two queries."""
    known = Q(committed=True) | Q(source__in=checkpoint.BEGINNINGS)
    whole = Checkpoint.objects.filter(known, run=lease.id, line=lease.line).order_by("-seq")
    begun = RunEvent.objects.filter(run=lease.id, type="line_begun").order_by("-seq")
    since = functions.Coalesce(Subquery(whole.values("event_seq")[:1]), Subquery(begun.values("seq")[:1]), 0)
    events = RunEvent.objects.filter(run=lease.id, type="effects_started", seq__gt=since)
    try:
        attempts = Counter(
            str(task) for content in events.values_list("task", flat=True) for task in intent_log.tasks_of(content)
        )
    except ValueError as error:
        raise TamperedRow(f"a line of run {lease.key} does not say what began: {error}", run=str(lease.id)) from error
    rows = TaskResult.objects.filter(run=lease.id, line=lease.line, node__in={Task.parse(one).node for one in attempts})
    there = Counter(row.task for row in rows.only("node", "visit", "index")) if attempts else {}
    for task, number in attempts.items():
        if there.get(task, 0) < number:
            raise TamperedRow(f"{number} attempts of {task} began, and {there.get(task, 0)} are there", task=task)


def entries(lease: Lease) -> dict[Task, Entry]:
    """The newest attempt of each task of the superstep in hand: those that no checkpoint lists yet. One query.

    Raises `TamperedRow` and `WrongKey`: a result that does not verify is not used.
    """
    rows = query_cache.select(TaskResult, _in_hand, lease.id, lease.line)
    sealed_rows.verify_rows(rows, lease.protection)
    return {Task(row.node, row.visit, row.index): _entry(row) for row in rows}


def _in_hand(run: UUID, line: int) -> "QuerySet[TaskResult]":
    return TaskResult.objects.filter(run=run, line=line, seq__isnull=True).order_by("attempt")


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


def write_intents(lease: Lease, intents: Sequence[Intent]) -> dict[Task, TaskResult]:
    """One commit: the intents of a superstep with their lines. The lease is whole afterwards. Gives the rows.

    Earlier attempts of these tasks that are still open are closed as failed: their result, should it come, is late.
    Raises `StaleLease`. A log that moved meanwhile is followed; the hold says so.
    """
    events, rows = intent_log.intent_events(intents), _intent_rows(lease, intents)

    def insert() -> None:
        _end(lease, [intent.task for intent in intents if intent.attempt > 1], [Outcome.OPEN], Outcome.FAILED)
        bulk.insert_all(rows, _OF_AN_INTENT)

    while True:
        try:
            ledger.append_events(lease, events, inside=insert)
        except ledger.ConcurrentUpdate:
            ledger.refresh_lease(lease)
            lease.moved = True
        else:
            return {intent.task: row for intent, row in zip(intents, rows, strict=True)}


_OF_AN_INTENT = ("node", "visit", "index", "attempt", "effect", "input_hash", "over_at", "seal")
"""The fields in which the intents of one commit differ."""


def _intent_rows(lease: Lease, intents: Sequence[Intent]) -> Sequence[TaskResult]:
    at, me, lease_seconds = lease.now(), this_process(), conf().lease_seconds
    common = {
        "run_id": lease.id,
        "line": lease.line,
        "epoch": lease.epoch,
        "worker": lease.worker,
        "host": me.host,
        "pid_space": me.pid_space,
        "pid": me.pid,
        "process_started": me.started,
        "superstep": lease.superstep + 1,
        "intent_at": at,
    }
    rows = [
        new_row(
            TaskResult,
            **common,
            node=i.task.node,
            visit=i.task.visit,
            index=i.task.index,
            attempt=i.attempt,
            effect=i.effect,
            input_hash=i.input_hash,
            over_at=at + timedelta(seconds=lease_seconds + i.timeout),
        )
        for i in intents
    ]
    return sealed_rows.seal_and_encrypt(rows, lease.protection)


def write_results(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """One commit for the endings that are ready. Gives those that were too late: their attempt was no longer open.

    Raises `StaleLease` where another epoch has the run, `TamperedRow` where an intent does not verify; then every
    ending is kept as evidence.
    """
    try:
        if all(ending.intent is not None and ending.thread_ended for ending in endings):
            with suppress(_NotAsBegun):
                return _recorded(lease, endings, _close_as_begun)
        return _recorded(lease, endings, _close)
    except (TamperedRow, WrongKey):
        keep_late_results(lease, endings)
        raise


Close = Callable[[Lease, Sequence[Ending]], list[Ending]]
"""Writes endings to their open intents, in the caller's transaction; gives those whose attempt is not open any more."""


def _recorded(lease: Lease, endings: Sequence[Ending], close: Close) -> list[Ending]:
    with transaction.atomic():
        mine = query_cache.exists(_locked, lease.id, lease.epoch)
        late = close(lease, endings) if mine else list(endings)
        keep_late_results(lease, late)
    if not mine:
        raise StaleLease("another worker has this run", run=str(lease.id), epoch=lease.epoch)
    return late


class _NotAsBegun(Exception):
    """An intent is not any more what this process wrote: its row must be looked at."""


def _close_as_begun(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """In one statement: a row that is in all its fields as this process sealed it verifies, and is open."""
    before = [ending.intent for ending in endings if ending.intent is not None]
    now = timezone.now()
    after = [
        new_row(TaskResult, **(vars(row) | _ended(ending, now))) for row, ending in zip(before, endings, strict=True)
    ]
    # Nothing of an intent is encrypted, for all its payloads are empty.
    sealed_rows.seal_and_encrypt(after, lease.protection)
    if bulk.update_all(before, after, own=_OF_AN_INTENT, names=_OF_AN_ENDING, alike=_OF_ALL) != len(endings):
        raise _NotAsBegun
    return []


_OF_AN_ENDING = ("outcome", "output", "error", "took_ms", "seal")
_OF_ALL = ("result_at", "thread_ended_at", "seal_key")
"""The fields that change when attempts end: those of each, and those in which endings of one commit are alike."""


def _locked(run: UUID, epoch: int) -> "QuerySet[Run, Any]":
    return Run.objects.select_for_update().filter(id=run, epoch=epoch, status=Status.RUNNING).order_by().values("id")


def _open(run: UUID, line: int, *tasks: str | int) -> "QuerySet[TaskResult]":
    """The open intents of tasks, each given as node, visit and index."""
    wanted = Q(pk__in=[])
    for node, visit, index in zip(*[iter(tasks)] * 3, strict=True):
        # Run and line in each, so that each is one look into the index however long the line is.
        wanted |= Q(run=run, line=line, node=node, visit=visit, index=index)
    return TaskResult.objects.filter(wanted, outcome=Outcome.OPEN).order_by()


def _close(lease: Lease, endings: Sequence[Ending]) -> list[Ending]:
    """Write endings to their open intents, in the caller's transaction, in two statements. Gives those whose attempt is
    not open any more.
    """
    tasks = [part for one in endings for part in (one.task.node, one.task.visit, one.task.index)]
    rows = query_cache.select(TaskResult, _open, lease.id, lease.line, *tasks)
    open_now = {(Task(row.node, row.visit, row.index), row.attempt): row for row in rows}
    # Taken out, so that of two endings of one attempt only the first is for it.
    found = [(ending, open_now.pop((ending.task, ending.attempt), None)) for ending in endings]
    now = timezone.now()
    written = amend_results([(row, _ended(ending, now)) for ending, row in found if row is not None], lease.protection)
    return [ending for ending, row in found if row is None or row.pk not in written]


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
    """What a payload column keeps of an output or an error, both of which were made canonical where they arose."""
    return codec.pack(canonical.encode(value)) if value is not None else b""


def amend_result(row: TaskResult, protection: Protection, **values: Any) -> bool:
    """Change a result that verifies and seal it anew, in the caller's transaction. Payloads are given packed, plain.

    False where its outcome has changed since it was read. Raises `TamperedRow`, `WrongKey`: a new seal on a row that
    does not verify would cover up what was done to it.
    """
    return bool(amend_results([(row, values)], protection))


def amend_results(changes: Sequence[tuple[TaskResult, dict[str, Any]]], protection: Protection) -> set[int]:
    """`amend_result` for several rows, the same fields of each, in one statement. Gives the keys of the rows that were
    written. Raises as `amend_result` does; then none was.
    """
    names: list[str] = []
    rows = [row for row, _ in changes]
    before = [row.outcome for row in rows]
    sealed_rows.verify_rows(rows, protection)
    for row, values in changes:
        names = sealed_rows.seal_again(row, protection, **values)
    return bulk.update_each(rows, names, was="outcome", before=before)


def run_atomically(lease: Lease, task: Task, attempt: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the node's work, its result and, last, the fence in one transaction; so its work happens once or not at all.

    `work` gives the output as JSON. Raises what `work` raises, and `StaleLease` where the attempt or the lease is gone:
    in both cases nothing happened.
    """
    begun = timezone.now()
    with transaction.atomic():
        output = work()
        took = int((timezone.now() - begun).total_seconds() * 1000)
        late = _close(lease, [Ending(task, attempt, Outcome.DONE, output, took_ms=took)])
        held = {"id": lease.id, "epoch": lease.epoch, "status": Status.RUNNING}
        fenced = statements.update_returning(Run, held, ["id"], epoch=lease.epoch)
        if late or not fenced:
            raise StaleLease("the attempt is over", run=str(lease.id), task=str(task), attempt=attempt)
    return output


def keep_late_results(lease: Lease, endings: Sequence[Ending]) -> None:
    """Keep endings that nobody applies: the one insert without a fence. The attempts are marked as over."""
    if not endings:
        return
    rows = [
        LateResult(
            run_id=lease.id,
            line=lease.line,
            node=ending.task.node,
            visit=ending.task.visit,
            index=ending.task.index,
            attempt=ending.attempt,
            epoch=lease.epoch,
            output=_packed(ending.output),
            error=_packed(ending.error),
            at=timezone.now(),
        )
        for ending in endings
    ]
    over = Q(pk__in=[])
    for row in rows:
        over |= Q(node=row.node, visit=row.visit, index=row.index, attempt=row.attempt)
    with transaction.atomic():
        drop_erased(lease, rows)
        statements.insert_rows(LateResult, sealed_rows.seal_and_encrypt(rows, lease.protection))
        _seal_thread_ended(lease.id, TaskResult.objects.filter(over, run=lease.id, line=lease.line), lease.protection)


def note_thread_ended(run: UUID, line: int, task: Task, attempt: int) -> None:
    """Note that the thread of an attempt has ended: from now on it cannot act any more."""
    protection = protection_of(Run.objects.only("encrypted", "hash_key").get(id=run))
    with transaction.atomic():
        _seal_thread_ended(run, _of(run, line, task).filter(attempt=attempt), protection)


def _seal_thread_ended(run: UUID, attempts: "QuerySet[TaskResult]", protection: Protection) -> None:
    """Write that the threads of these attempts have ended. Of a row that does not verify nothing is written."""
    now = timezone.now()
    # The run before its result, as everywhere: whoever else seals a result anew has read it under this lock.
    list(Run.objects.select_for_update().filter(id=run).order_by().values_list("id"))
    for row in attempts.select_for_update().order_by("id"):
        try:
            amend_result(row, protection, thread_ended_at=now)
        except (TamperedRow, WrongKey) as error:
            log.warning("thread_end_not_noted", row=sealed_rows.name_of(row), error=error.message)


def mark_tasks_unknown(lease: Lease, tasks: Iterable[Task]) -> None:
    """These tasks are for a person to settle: open attempts, and results for another input. In the caller's
    transaction.
    """
    _end(lease, tasks, [Outcome.OPEN, Outcome.DONE], Outcome.UNKNOWN)


def _end(lease: Lease, tasks: Iterable[Task], those: Sequence[Outcome], outcome: Outcome) -> None:
    """Give the attempts of these tasks with one of `those` outcomes another one: one query and one statement."""
    wanted = set(tasks)
    if not wanted:
        return
    rows = TaskResult.objects.filter(
        run=lease.id, line=lease.line, outcome__in=those, node__in={task.node for task in wanted}
    )
    found = [row for row in rows if Task(row.node, row.visit, row.index) in wanted]
    amend_results([(row, {"outcome": outcome}) for row in found], lease.protection)


def list_update(lease: Lease, seq: int, **only: str) -> statements.Update:
    """Notes the checkpoint that lists the journaled results of the superstep in hand; for that commit's transaction."""
    return statements.Update(TaskResult, {"run_id": lease.id, "line": lease.line, "seq": None, **only}, {"seq": seq})


def list_done_results(lease: Lease, seq: int) -> None:
    """The same for those that are done alone, in the transaction that is open."""
    done = list_update(lease, seq, outcome=Outcome.DONE)
    statements.update_returning(TaskResult, done.where, ["id"], **done.values)


def _of(run: UUID, line: int, task: Task) -> Any:
    return TaskResult.objects.filter(run=run, line=line, node=task.node, visit=task.visit, index=task.index)
