"""Records of what tasks read from memory, for a resumed task to see it again (modes
snapshot, journaled), and for pages.

In those two modes a row is written before the node gets its answer. In live mode the
rows ride in the commit. A task that must run again because memory changed loses its
records first.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.core.tombstone import is_tombstone
from checkpoints.db import statements
from checkpoints.db.second_connection import open_second_connection
from checkpoints.memory.shelf import DatabaseShelf, off_the_loop
from checkpoints.models import Checkpoint, MemoryLanding, MemoryRecord, Run
from checkpoints.models.checkpoint import Source
from checkpoints.models.fields import task_columns
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine import Task
from orchestrator.engine.errors import (
    CountersignError,
    StaleLease,
    TamperedRow,
    WrongKey,
)
from orchestrator.engine.graphs.trace import LIVE, Trace
from orchestrator.engine.step.memory import Answer, KeyStanding
from orchestrator.engine.step.output import Output, Recorded, WriteValue
from orchestrator.engine.values.canonical import Json

JOURNAL = "journal"
MOST_TRIES = 5
"""The most times that a read is renumbered because its number was taken."""


@dataclass(slots=True)
class ReplayingShelf:
    """A shelf that gives a task the answers that it got before, call by call, and reads
    anything else as it is now.
    """

    lease: Lease
    task: Task
    mode: str
    live: DatabaseShelf
    masked: Callable[[Json], Json] = lambda value: value
    atomic: bool = False
    refused: CountersignError | None = None
    _records: list[MemoryRecord] | None = None
    _returned: set[int] = field(default_factory=set)
    _resumed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held where records are numbered: threads of one node may read at once."""

    @property
    def recorded(self) -> Recorded | None:
        """Return how many records this task has; None if it has none, or none were
        read.
        """
        if not self._records:
            return None
        return Recorded(self.lease.id.hex, self.lease.line, len(self._records))

    def get(self, namespace: str, key: str) -> Answer:
        def read() -> Answer:
            return self.live.get(namespace, key)

        return off_the_loop(lambda: self._answer(["get", namespace, key], read))

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        call: list[Json] = ["search", text, namespace, limit]

        def read() -> Answer:
            return self.live.search(text, namespace, limit)

        return off_the_loop(lambda: self._answer(call, read))

    def standing(self, namespace: str, key: str) -> KeyStanding:
        return self.live.standing(namespace, key)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        """Record the writes that the task wishes for, and return those that count: the
        ones that it wished for when it first came this far.
        """
        # The record is written before the executor masks what the task returns.
        masked = [self._masked_write(write) for write in writes]
        return off_the_loop(lambda: self._journal(masked))

    def _answer(self, call: list[Json], read: Callable[[], Answer]) -> Answer:
        call = self.masked(call)
        with self._lock:
            record = self._next_record(call)
        # An answer without a record could be another one when the task is resumed.
        if record is None:
            answer = self._masked_answer(read())
            with self._lock:
                return self._recorded_answer(call, answer)
        return _answer_of(sealed_columns.read_value(record, "found"))

    def _recorded_answer(self, call: list[Json], answer: Answer) -> Answer:
        """Record the answer and return it; if another worker with this very task has
        recorded the call, return the answer of that record.
        """
        for _ in range(MOST_TRIES):
            if self._record(call[0], call, _answer_json(answer)):
                return replace(answer, unrecorded=self._resumed)
            record = self._next_record(call)
            if record is not None:
                return _answer_of(sealed_columns.read_value(record, "found"))
        raise self._stale_lease()

    def _masked_answer(self, answer: Answer) -> Answer:
        """Return the answer as the node gets it now and from its record later."""
        traces: list[Trace] = []
        for trace in answer.traces:
            # It may have been remembered before its secret was added to the settings.
            traces.append(replace(trace, content=self.masked(trace.content)))
        return replace(answer, traces=tuple(traces))

    def _masked_write(self, write: WriteValue) -> WriteValue:
        label = self.masked(write.label)
        return replace(write, value=self.masked(write.value), label=label)

    def _next_record(self, call: list[Json]) -> MemoryRecord | None:
        """Return the first record of this call that was not returned yet."""
        for row in self._loaded():
            if row.kind == JOURNAL or row.n in self._returned:
                continue
            if sealed_columns.read_value(row, "asked") == call:
                self._returned.add(row.n)
                return row
        return None

    def _loaded(self) -> list[MemoryRecord]:
        if self._records is None:
            self._records = self._read()
            self._resumed = bool(self._records)
        return self._records

    def _read(self) -> list[MemoryRecord]:
        rows = list(_records_of(self.lease, [self.task]).order_by("n"))
        for row in rows:
            try:
                sealed_rows.verify_row(row, self.lease.protection)
            except (TamperedRow, WrongKey) as error:
                # The node may catch the error, so the executor looks here after the
                # node has ended.
                self.refused = error
                raise
        return rows

    def _record(self, kind: str, call: Json, result: Json) -> bool:
        """Write a record under the next number, and return whether it was written: if
        another worker took that number, the records are read again instead. Raises
        `StaleLease`: a record that comes after the lease was lost would belong to a run
        that goes on without it.
        """
        records = self._loaded()
        n = max((row.n for row in records), default=-1) + 1
        row = _record_row(
            self.lease,
            self.task,
            n,
            kind=kind,
            mode=self.mode,
            call=call,
            result=result,
            at=timezone.now(),
        )
        row.unrecorded = self._resumed and kind != JOURNAL
        sealed_rows.seal_and_encrypt([row], self.lease.protection)
        try:
            self._insert(row)
        except IntegrityError:
            self._records = self._read()
            return False
        records.append(row)
        self._returned.add(n)
        return True

    def _insert(self, row: MemoryRecord) -> None:
        """Insert a record under the fence, in one statement. Raises `IntegrityError`,
        `StaleLease`.
        """
        lease = self.lease
        held = {"id": lease.id, "epoch": lease.epoch, "status": Status.RUNNING}
        if self._in_transaction_of_node():
            # A record in it would keep the run's row locked, which would keep people
            # from signing, cancels or renews the lease until it ends; and a rollback
            # would take the record along, though it was read.
            with open_second_connection() as apart:
                inserted = statements.insert_while(row, Run, held, using=apart)
        else:
            # The fence of an atomic task comes last; it locks the run's row then, and
            # not before.
            with transaction.atomic() if connection.in_atomic_block else nullcontext():
                inserted = statements.insert_while(row, Run, held, lock=not self.atomic)
        if not inserted:
            raise self._stale_lease()

    def _stale_lease(self) -> StaleLease:
        lease = self.lease
        return StaleLease(
            "another worker has this run", run=str(lease.id), epoch=lease.epoch
        )

    def _in_transaction_of_node(self) -> bool:
        """Return whether the node itself began the transaction that is open, on a
        database where a second connection can write in the meantime.
        """
        if self.atomic or not connection.in_atomic_block:
            return False
        return connection.vendor == "postgresql"

    def _journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        with self._lock:
            for _ in range(MOST_TRIES):
                journaled = self._journaled()
                if journaled is not None:
                    return journaled
                if not writes or self._record_journal(writes):
                    return writes
        raise self._stale_lease()

    def _record_journal(self, writes: Sequence[WriteValue]) -> bool:
        result: list[Json] = []
        for write in writes:
            result.append(write.to_json())
        return self._record(JOURNAL, [JOURNAL], result)

    def _journaled(self) -> list[WriteValue] | None:
        for row in self._loaded():
            if row.kind == JOURNAL:
                writes = sealed_columns.read_value(row, "found")
                return [WriteValue.from_json(write) for write in writes]
        return None


def _record_row(
    lease: Lease,
    task: Task,
    n: int,
    *,
    kind: str,
    mode: str,
    call: Json,
    result: Json,
    at: datetime,
) -> MemoryRecord:
    return MemoryRecord(
        **task_columns(lease.id, lease.line, task),
        n=n,
        kind=kind,
        mode=mode,
        asked=pack_json(call),
        found=pack_json(result),
        superstep=lease.superstep + 1,
        at=at,
    )


def _answer_json(answer: Answer) -> Json:
    return {
        "version": answer.version,
        "traces": [_trace_json(trace) for trace in answer.traces],
    }


def _trace_json(trace: Trace) -> dict[str, Json]:
    return {
        "ref": trace.ref,
        "content": trace.content,
        "run": trace.run.hex if trace.run else None,
        "node": trace.node,
        "superstep": trace.superstep,
        "at": trace.at.isoformat() if trace.at else None,
    }


def _answer_of(result: dict[str, Any]) -> Answer:
    traces = tuple(_trace_of(trace) for trace in result["traces"])
    return Answer(traces, result["version"])


def _trace_of(json: dict[str, Any]) -> Trace:
    namespace, key, version, strength = json["ref"]
    run = UUID(json["run"]) if json["run"] else None
    at = datetime.fromisoformat(json["at"]) if json["at"] else None
    return Trace(
        namespace,
        key,
        json["content"],
        strength,
        version,
        run,
        json["node"],
        json["superstep"],
        at,
    )


def _records_of(lease: Lease, tasks: Iterable[Task]) -> "QuerySet[MemoryRecord]":
    of_tasks = Q(pk__in=[])
    for task in tasks:
        of_tasks |= Q(node=task.node, visit=task.visit, index=task.index)
    return MemoryRecord.objects.filter(of_tasks, run=lease.id, line=lease.line)


def delete_read_records(lease: Lease, tasks: Iterable[Task]) -> None:
    """Delete the records of these tasks, so that they read memory again: what they had
    read led to a conflict.
    """
    _records_of(lease, tasks).delete()


def records_of_live_reads(
    lease: Lease, outputs: Iterable[tuple[Task, Output]], *, at: datetime
) -> list[MemoryRecord]:
    """Return the rows that record what tasks read in live mode: their results are names
    of traces, without content.
    """
    rows = []
    for task, output in outputs:
        for n, read in enumerate(output.reads):
            if read["mode"] != LIVE:
                continue
            row = _record_row(
                lease,
                task,
                n,
                kind=read["asked"][0],
                mode=LIVE,
                call=read["asked"],
                result=read["found"],
                at=at,
            )
            rows.append(row)
    return list(sealed_rows.seal_and_encrypt(rows, lease.protection))


def memory_at(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return what a checkpoint's superstep read from memory, and what landed with it:
    {reads, landed, added, updated, removed}, the first two by task, the others as
    [namespace/key]; None if there was neither. Reads have content if their mode keeps
    it. Two queries.
    """
    reads: list[dict[str, Any]] = []
    # A checkpoint of another source has the number of a superstep that it did not run.
    if checkpoint.source == Source.SUPERSTEP:
        records = MemoryRecord.objects.filter(
            run=checkpoint.run_id, line=checkpoint.line, superstep=checkpoint.superstep
        )
        shown = records.exclude(kind=JOURNAL).order_by("id")
        reads = [_read_json(row) for row in shown]
    landings = list(
        MemoryLanding.objects.filter(
            run=checkpoint.run_id, line=checkpoint.line, seq=checkpoint.seq
        ).order_by("id")
    )
    if not reads and not landings:
        return None
    landed = [_landing_json(row) for row in landings]
    return {"reads": reads, "landed": landed, **memory_changes(landings)}


def _landing_json(row: MemoryLanding) -> dict[str, Any]:
    return {
        "task": row.task,
        "n": row.n,
        "namespace": row.namespace,
        "key": row.key,
        "version": row.version,
        "deleted": row.deleted,
        "change": row.change,
    }


def memory_changes(landings: Iterable[MemoryLanding]) -> dict[str, list[str]]:
    """Return the sum of these landings: {added, updated, removed}, each key once, as
    `namespace/key`, in order.
    """
    word_of_key: dict[str, str] = {}
    for row in landings:
        address = f"{row.namespace}/{row.key}"
        before = word_of_key.get(address)
        word_of_key[address] = _word_after(before, _word_of(row))
    return {
        word: sorted(key for key, sum_ in word_of_key.items() if sum_ == word)
        for word in ("added", "updated", "removed")
    }


def _word_of(row: MemoryLanding) -> str:
    """Return what a landing did to its key."""
    if row.change:
        return row.change
    # Rows of older versions do not have the word.
    if row.deleted:
        return "removed"
    return "added" if row.version == 1 else "updated"


def _word_after(before: str | None, word: str) -> str:
    """Return the effect of two changes of a key, one after the other, as one word."""
    if before is None or before == "nothing":
        return word
    if word == "nothing":
        return before
    # A key that one commit added and removed was not there before it, and is not there
    # after it.
    if before == "added":
        return "nothing" if word == "removed" else "added"
    return "removed" if word == "removed" else "updated"


def _read_json(row: MemoryRecord) -> dict[str, Any]:
    call = sealed_columns.read_value(row, "asked")
    result = sealed_columns.read_value(row, "found")
    if is_tombstone(call) or is_tombstone(result):
        # Both are erased as a whole. All that remains is that something was read.
        call = [row.kind]
        result = [] if row.mode == LIVE else {"traces": []}
    kind, *arguments = call
    if row.mode == LIVE:
        traces = [_shown_trace(ref, None) for ref in result]
    else:
        traces = [
            _shown_trace(trace["ref"], trace.get("content"))
            for trace in result["traces"]
        ]
    return {
        "task": row.task,
        "kind": kind,
        "asked": arguments,
        "mode": row.mode,
        "unrecorded": row.unrecorded,
        "traces": traces,
    }


def _shown_trace(ref: Sequence[Any], content: Any) -> dict[str, Any]:
    namespace, key, version, strength = ref
    return {
        "namespace": namespace,
        "key": key,
        "version": version,
        "strength": strength,
        "content": content,
    }
