"""The journal of write and external tasks: an intent before, a result after. The executor writes it, recovery reads it.

An intent rides with its `started` line in one commit. A result commit checks the epoch under the row's lock and writes
no
line. A result is accepted only for the attempt whose intent is open; one that comes too late is kept as evidence.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Subquery
from django.utils import timezone

from checkpoints import ledger, packed, sealing, sql
from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.events import Draft
from checkpoints.leases import Hold
from checkpoints.models import Checkpoint, LateResult, Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.packed import pack
from checkpoints.processes import this_process
from checkpoints.sealing import Cover
from orchestrator.engine import Task
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey


@dataclass(frozen=True, slots=True)
class Intent:
    """That an attempt is about to begin. `timeout` in seconds."""

    task: Task
    attempt: int
    effect: str
    input_hash: str
    timeout: float


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended. `output` as JSON of the engine's Output, `error` as {type, message, traceback}."""

    task: Task
    attempt: int
    outcome: str
    output: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    took_ms: int = 0
    thread_ended: bool = field(default=True)


def in_hand(hold: Hold, head: ledger.Head) -> dict[Task, Entry]:
    """`entries` for whoever takes the run over. Raises `TamperedRow` also where an attempt has no row though the log
    says that it began: without its row the effect would be made again.
    """
    found = entries(hold)
    if hold.end.seq > head.logged or head.payload.open:
        _require_begun(hold)
    return found


def _require_begun(hold: Hold) -> None:
    """Every attempt that began since the last whole superstep has its row. Two queries."""
    whole = Checkpoint.objects.filter(run=hold.id, line=hold.line, committed=True).order_by("-seq")
    lines = RunEvent.objects.filter(
        run=hold.id, type="effects_started", seq__gt=Subquery(whole.values("event_seq")[:1])
    )
    begun = Counter(lines.values_list("task", flat=True))
    rows = TaskResult.objects.filter(run=hold.id, line=hold.line, node__in={Task.parse(task).node for task in begun})
    there = Counter(row.task for row in rows.only("node", "visit", "index")) if begun else {}
    for task, attempts in begun.items():
        if there.get(task, 0) < attempts:
            raise TamperedRow(f"{attempts} attempts of {task} began, and {there.get(task, 0)} are there", task=task)


def entries(hold: Hold) -> dict[Task, Entry]:
    """The newest attempt of each task of the superstep in hand: those that no checkpoint lists yet. One query.

    Raises `TamperedRow` and `WrongKey`: a result that does not verify is not used.
    """
    rows = list(TaskResult.objects.filter(run=hold.id, line=hold.line, seq__isnull=True).order_by("attempt"))
    sealing.verify_all(rows, hold.cover)
    return {Task(row.node, row.visit, row.index): _entry(row) for row in rows}


def _entry(row: TaskResult) -> Entry:
    return Entry(
        task=Task(row.node, row.visit, row.index),
        attempt=row.attempt,
        outcome=row.outcome,
        input_hash=row.input_hash,
        output=packed.value(row, "output"),
        error=packed.value(row, "error"),
        took_ms=row.took_ms,
        settled=bool(bytes(row.settled_reason)),
    )


def begin(hold: Hold, intents: Sequence[Intent]) -> None:
    """One commit: the intents of a superstep with their lines. The lease is whole afterwards.

    Earlier attempts of these tasks that are still open are closed as failed: their result, should it come, is late.
    Raises `StaleLease`. A log that moved meanwhile is followed; the hold says so.
    """
    lines = [
        Draft("effects_started", {"attempt": i.attempt, "effect": i.effect}, node=i.task.node, task=str(i.task))
        for i in intents
    ]
    while True:
        try:
            return ledger.append(hold, lines, inside=lambda: _insert(hold, intents))
        except ledger.Moved:
            ledger.look_again(hold)
            hold.moved = True


def _insert(hold: Hold, intents: Sequence[Intent]) -> None:
    at, me = hold.now(), this_process()
    for intent in intents:
        if intent.attempt > 1:
            for row in _of(hold.id, hold.line, intent.task).filter(outcome=Outcome.OPEN):
                amend(row, hold.cover, outcome=Outcome.FAILED)
    rows = [
        TaskResult(
            run_id=hold.id,
            line=hold.line,
            node=i.task.node,
            visit=i.task.visit,
            index=i.task.index,
            attempt=i.attempt,
            effect=i.effect,
            epoch=hold.epoch,
            worker=hold.worker,
            host=me.host,
            pid=me.pid,
            process_started=me.started,
            superstep=hold.superstep + 1,
            input_hash=i.input_hash,
            intent_at=at,
            over_at=at + timedelta(seconds=conf().lease_seconds + i.timeout),
        )
        for i in intents
    ]
    sql.insert(TaskResult, sealing.finish(rows, hold.cover))


def record(hold: Hold, endings: Sequence[Ending]) -> list[Ending]:
    """One commit for the endings that are ready. Gives those that were too late: their attempt was no longer open.

    Raises `StaleLease` where another epoch has the run, `TamperedRow` where an intent does not verify; then every
    ending is kept as evidence.
    """
    try:
        with transaction.atomic():
            held = Run.objects.select_for_update().filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING)
            mine = held.values_list("id", flat=True).first() is not None
            open_now = _open(hold) if mine else {}
            late = [e for e in endings if not _close(open_now.get((e.task, e.attempt)), hold.cover, e)]
            keep_late(hold, late)
    except (TamperedRow, WrongKey):
        keep_late(hold, endings)
        raise
    if not mine:
        raise StaleLease("another worker has this run", run=str(hold.id), epoch=hold.epoch)
    return late


def _open(hold: Hold) -> dict[tuple[Task, int], TaskResult]:
    """The open intents of the superstep in hand, by task and attempt."""
    rows = TaskResult.objects.filter(run=hold.id, line=hold.line, seq__isnull=True, outcome=Outcome.OPEN)
    return {(Task(row.node, row.visit, row.index), row.attempt): row for row in rows}


def _close(row: TaskResult | None, cover: Cover, ending: Ending) -> bool:
    """Write one ending to its open intent, in the caller's transaction. False: that attempt is not open any more."""
    now = timezone.now()
    return row is not None and amend(
        row,
        cover,
        outcome=ending.outcome,
        output=pack(ending.output) if ending.output is not None else b"",
        error=pack(ending.error) if ending.error is not None else b"",
        result_at=now,
        took_ms=ending.took_ms,
        thread_ended_at=now if ending.thread_ended else None,
    )


def amend(row: TaskResult, cover: Cover, **values: Any) -> bool:
    """Change a result that verifies and seal it anew, in the caller's transaction. Payloads are given packed, plain.

    False where its outcome has changed since it was read. Raises `TamperedRow`, `WrongKey`: a new seal on a row that
    does not verify would cover up what was done to it.
    """
    sealing.verify(row, cover)
    before = TaskResult.objects.filter(id=row.pk, outcome=row.outcome)
    names = sealing.seal_again(row, cover, **values)
    return bool(before.update(**{name: getattr(row, name) for name in names}))


def atomically(hold: Hold, task: Task, attempt: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the node's work, its result and, last, the fence in one transaction; so its work happens once or not at all.

    `work` gives the output as JSON. Raises what `work` raises, and `StaleLease` where the attempt or the lease is gone:
    in both cases nothing happened.
    """
    begun = timezone.now()
    with transaction.atomic():
        output = work()
        took = int((timezone.now() - begun).total_seconds() * 1000)
        row = _of(hold.id, hold.line, task).filter(attempt=attempt, outcome=Outcome.OPEN).first()
        mine = _close(row, hold.cover, Ending(task, attempt, Outcome.DONE, output, took_ms=took))
        fenced = Run.objects.filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING).update(epoch=F("epoch"))
        if not (mine and fenced):
            raise StaleLease("the attempt is over", run=str(hold.id), task=str(task), attempt=attempt)
    return output


def keep_late(hold: Hold, endings: Iterable[Ending]) -> None:
    """Keep endings that nobody applies: the one insert without a fence. The attempt is marked as over."""
    for ending in endings:
        row = LateResult(
            run_id=hold.id,
            line=hold.line,
            node=ending.task.node,
            visit=ending.task.visit,
            index=ending.task.index,
            attempt=ending.attempt,
            epoch=hold.epoch,
            output=pack(ending.output) if ending.output is not None else b"",
            error=pack(ending.error) if ending.error is not None else b"",
            at=timezone.now(),
        )
        sql.insert(LateResult, sealing.finish([row], hold.cover))
        thread_ended(hold.id, hold.line, ending.task, ending.attempt)


def thread_ended(run: UUID, line: int, task: Task, attempt: int) -> None:
    """Note that the thread of an attempt has ended: from now on it cannot act any more."""
    _of(run, line, task).filter(attempt=attempt).update(thread_ended_at=timezone.now())


def mark_unknown(hold: Hold, tasks: Iterable[Task]) -> None:
    """These tasks are for a person to settle: open attempts, and results for another input. In the caller's
    transaction.
    """
    for task in tasks:
        for row in _of(hold.id, hold.line, task).filter(outcome__in=[Outcome.OPEN, Outcome.DONE]):
            amend(row, hold.cover, outcome=Outcome.UNKNOWN)


def list_in(hold: Hold, seq: int, *, done_only: bool = False) -> None:
    """Note the checkpoint that lists the journaled results of the superstep in hand. In the commit's transaction."""
    rows = TaskResult.objects.filter(run=hold.id, line=hold.line, seq__isnull=True)
    (rows.filter(outcome=Outcome.DONE) if done_only else rows).update(seq=seq)


def _of(run: UUID, line: int, task: Task) -> Any:
    return TaskResult.objects.filter(run=run, line=line, node=task.node, visit=task.visit, index=task.index)
