"""What tasks read from memory, kept: to be seen again by a resumed task (modes snapshot, journaled), and to be shown.

In those two modes a row is written before the node gets its answer. In live mode the rows ride in the commit. A task
that must run again because memory changed loses its records first.
"""

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
from checkpoints.memory.shelf import Shelf, off_the_loop
from checkpoints.models import Checkpoint, MemoryLanding, MemoryRecord, Run
from checkpoints.models.checkpoint import Source
from checkpoints.models.fields import task_columns
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine import Task
from orchestrator.engine.canonical import Json
from orchestrator.engine.errors import CountersignError, StaleLease, TamperedRow, WrongKey
from orchestrator.engine.memory import Answer, Standing
from orchestrator.engine.output import Output, WriteValue
from orchestrator.engine.trace import LIVE, Trace

JOURNAL = "journal"


@dataclass(slots=True)
class ReplayingShelf:
    """A shelf that gives a task what it was given before, call by call; anything else it reads as it is now."""

    lease: Lease
    task: Task
    mode: str
    live: Shelf
    masked: Callable[[Json], Json] = lambda value: value
    atomic: bool = False
    refused: CountersignError | None = None
    _records: list[MemoryRecord] | None = None
    _given: set[int] = field(default_factory=set)
    _resumed: bool = False

    def get(self, namespace: str, key: str) -> Answer:
        return off_the_loop(lambda: self._answer(["get", namespace, key], lambda: self.live.get(namespace, key)))

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        asked = ["search", text, namespace, limit]
        return off_the_loop(lambda: self._answer(asked, lambda: self.live.search(text, namespace, limit)))

    def standing(self, namespace: str, key: str) -> Standing:
        return self.live.standing(namespace, key)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        """Take down what the task wishes; what it wished when it first got so far is what counts."""
        return off_the_loop(lambda: self._journal(writes))

    def _answer(self, asked: list[Json], read: Callable[[], Answer]) -> Answer:
        asked = self.masked(asked)
        kept = self._next(asked)
        if kept is None:
            answer = read()
            if self._keep(asked[0], asked, _answer_json(answer)):
                return replace(answer, unrecorded=self._resumed)
            kept = self._next(asked)  # another worker has this very task, and was first
        return _answer_of(sealed_columns.read_value(kept, "found")) if kept else read()

    def _next(self, asked: list[Json]) -> MemoryRecord | None:
        """The first record of this call that was not given yet."""
        for row in self._loaded():
            if row.kind != JOURNAL and row.n not in self._given and sealed_columns.read_value(row, "asked") == asked:
                self._given.add(row.n)
                return row
        return None

    def _loaded(self) -> list[MemoryRecord]:
        if self._records is None:
            self._records = self._read()
            self._resumed = bool(self._records)
        return self._records

    def _read(self) -> list[MemoryRecord]:
        rows = list(_of(self.lease, [self.task]).order_by("n"))
        for row in rows:
            try:
                sealed_rows.verify_row(row, self.lease.protection)
            except (TamperedRow, WrongKey) as error:
                self.refused = error
                raise
        return rows

    def _keep(self, kind: str, asked: Json, found: Json) -> bool:
        """Write a record down. False: somebody else wrote one in its place, and the records were read anew. Raises
        `StaleLease`: a record that comes after the lease was lost would stand in a run that goes on without it.
        """
        records = self._loaded()
        n = max((row.n for row in records), default=-1) + 1
        row = _record(self.lease, self.task, n, kind=kind, mode=self.mode, asked=asked, found=found, at=timezone.now())
        row.unrecorded = self._resumed and kind != JOURNAL
        sealed_rows.seal_and_encrypt([row], self.lease.protection)
        try:
            self._insert(row)
        except IntegrityError:
            self._records = self._read()
            return False
        records.append(row)
        self._given.add(n)
        return True

    def _insert(self, row: MemoryRecord) -> None:
        """Under the fence, in one statement. Raises `IntegrityError`, `StaleLease`."""
        lease = self.lease
        held = {"id": lease.id, "epoch": lease.epoch, "status": Status.RUNNING}
        if connection.in_atomic_block and not self.atomic and connection.vendor == "postgresql":
            # The node began this transaction by itself. A record in it would keep the run's row locked, so that nobody
            # signs, cancels or renews the lease until it ends; and it would go with a rollback, though it was read.
            with open_second_connection() as apart:
                inserted = statements.insert_while(row, Run, held, using=apart)
        else:
            # An atomic task has its own fence, last; it locks the run's row then, and not before.
            with transaction.atomic() if connection.in_atomic_block else nullcontext():
                inserted = statements.insert_while(row, Run, held, lock=not self.atomic)
        if not inserted:
            raise StaleLease("another worker has this run", run=str(lease.id), epoch=lease.epoch)

    def _journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        kept = self._journaled()
        if kept is None and writes:
            if self._keep(JOURNAL, [JOURNAL], [write.to_json() for write in writes]):
                return writes
            kept = self._journaled()
        return writes if kept is None else kept

    def _journaled(self) -> list[WriteValue] | None:
        rows = [row for row in self._loaded() if row.kind == JOURNAL]
        return [WriteValue.from_json(one) for one in sealed_columns.read_value(rows[0], "found")] if rows else None


def _record(
    lease: Lease, task: Task, n: int, *, kind: str, mode: str, asked: Json, found: Json, at: datetime
) -> MemoryRecord:
    return MemoryRecord(
        **task_columns(lease.id, lease.line, task),
        n=n,
        kind=kind,
        mode=mode,
        asked=pack_json(asked),
        found=pack_json(found),
        superstep=lease.superstep + 1,
        at=at,
    )


def _answer_json(answer: Answer) -> Json:
    return {"version": answer.version, "traces": [_trace_json(one) for one in answer.traces]}


def _trace_json(one: Trace) -> dict[str, Json]:
    content = {"run": one.run.hex if one.run else None, "node": one.node, "superstep": one.superstep}
    return {"ref": one.ref, "content": one.content, **content, "at": one.at.isoformat() if one.at else None}


def _answer_of(kept: dict[str, Any]) -> Answer:
    return Answer(tuple(_trace_of(one) for one in kept["traces"]), kept["version"])


def _trace_of(kept: dict[str, Any]) -> Trace:
    namespace, key, version, strength = kept["ref"]
    run = UUID(kept["run"]) if kept["run"] else None
    at = datetime.fromisoformat(kept["at"]) if kept["at"] else None
    return Trace(namespace, key, kept["content"], strength, version, run, kept["node"], kept["superstep"], at)


def _of(lease: Lease, tasks: Iterable[Task]) -> "QuerySet[MemoryRecord]":
    wanted = Q(pk__in=[])
    for task in tasks:
        wanted |= Q(node=task.node, visit=task.visit, index=task.index)
    return MemoryRecord.objects.filter(wanted, run=lease.id, line=lease.line)


def delete_read_records(lease: Lease, tasks: Iterable[Task]) -> None:
    """Let these tasks read anew: what they read led to a conflict."""
    _of(lease, tasks).delete()


def records_of_live_reads(lease: Lease, outputs: Iterable[tuple[Task, Output]], *, at: datetime) -> list[MemoryRecord]:
    """The rows of what tasks read in live mode: what they found by name, without its content."""
    rows = [
        _record(lease, task, n, kind=read["asked"][0], mode=LIVE, asked=read["asked"], found=read["found"], at=at)
        for task, output in outputs
        for n, read in enumerate(output.reads)
        if read["mode"] == LIVE
    ]
    return list(sealed_rows.seal_and_encrypt(rows, lease.protection))


def memory_at(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What its superstep read from memory, and what landed with it: {reads, landed, added, updated, removed}, the first
    two by task, the others as [namespace/key]; None where there was nothing of both. Content is there where its mode
    keeps it. Two queries.
    """
    records = MemoryRecord.objects.filter(run=checkpoint.run_id, line=checkpoint.line, superstep=checkpoint.superstep)
    ran = checkpoint.source == Source.SUPERSTEP
    reads = [_read_json(row) for row in records.exclude(kind=JOURNAL).order_by("id")] if ran else []
    landings = list(
        MemoryLanding.objects.filter(run=checkpoint.run_id, line=checkpoint.line, seq=checkpoint.seq).order_by("id")
    )
    names = ("n", "namespace", "key", "version", "deleted", "change")
    landed = [{"task": row.task, **{name: getattr(row, name) for name in names}} for row in landings]
    if not (reads or landed):
        return None
    return {"reads": reads, "landed": landed, **memory_changes(landings)}


def memory_changes(landings: Iterable[MemoryLanding]) -> dict[str, list[str]]:
    """What these landings come to: {added, updated, removed}, each key once, as `namespace/key`, in order."""
    found: dict[str, str] = {}
    for row in landings:
        word = row.change or ("removed" if row.deleted else "added" if row.version == 1 else "updated")
        address = f"{row.namespace}/{row.key}"
        before = found.get(address)
        if before is None or word == "nothing":
            found.setdefault(address, word)
        elif before == "added":
            # What was added and removed by one commit is not there before it, and not after it.
            found[address] = "added" if word != "removed" else "nothing"
        elif before == "nothing":
            found[address] = word
        else:
            found[address] = "removed" if word == "removed" else "updated"
    return {word: sorted(key for key, one in found.items() if one == word) for word in ("added", "updated", "removed")}


def _read_json(row: MemoryRecord) -> dict[str, Any]:
    asked, found = (sealed_columns.read_value(row, name) for name in ("asked", "found"))
    if is_tombstone(asked) or is_tombstone(found):
        # Both go as a whole, and there is nothing to tell but that something was read.
        asked, found = [row.kind], [] if row.mode == LIVE else {"traces": []}
    kind, *asked = asked
    kept = found["traces"] if row.mode != LIVE else [{"ref": ref} for ref in found]
    names = ("namespace", "key", "version", "strength")
    traces = [{**dict(zip(names, one["ref"], strict=True)), "content": one.get("content")} for one in kept]
    content = {"task": row.task, "kind": kind, "asked": asked, "mode": row.mode, "unrecorded": row.unrecorded}
    return {**content, "traces": traces}
