"""Copies of a run: the same rows with other ids, chained and sealed as if each copy had
been run by itself. For reference data; the runs of an installation are never copied.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from django.db import connection, connections, transaction
from django.db.models import Model

from approvals.models import (
    ApprovalRequest,
    Decision,
    Draft,
    Receipt,
    RequestReviewer,
)
from checkpoints import event_log
from checkpoints.core.ids import uuid7
from checkpoints.db.rows import new_row
from checkpoints.db.statements import copy_rows
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine import Task, write_id

Row = TypeVar("Row", bound=Model)
TABLES = (
    Run,
    Checkpoint,
    RunEvent,
    ApprovalRequest,
    PendingWrite,
    Receipt,
    Decision,
    # Reviewers come after decisions: as their rows are inserted, triggers look whether a
    # deadline decided.
    RequestReviewer,
    Draft,
)
"""The tables whose rows are copied, in the order in which they are inserted."""


class Template:
    """The rows of a run that is copied. It is not encrypted, and has one line, no
    journaled results and no edited writes.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.checkpoints = list(Checkpoint.objects.filter(run=run).order_by("seq"))
        events = RunEvent.objects.filter(run=run).order_by("seq")
        self.events = [(event, read_value(event, "payload")) for event in events]
        self.requests = list(ApprovalRequest.objects.filter(run=run))
        self.reviewers = list(RequestReviewer.objects.filter(request__run=run))
        self.writes = list(PendingWrite.objects.filter(run=run))
        self.receipts = list(Receipt.objects.filter(run=run))
        self.decisions = list(Decision.objects.filter(run=run.id))
        self.drafts = list(Draft.objects.filter(run=run))

        # Read once, since each copy has most of these values.
        self._values: dict[int, _Values] = {}
        self.ids: list[str] = []
        rows: Sequence[Model]
        for rows in (self.checkpoints, self.requests, self.receipts):
            for row in rows:
                self.ids.append(str(row.pk))
                self._keep(row)
        self._keep(run)
        others: Sequence[Model]
        for others in (self.reviewers, self.writes, self.decisions, self.drafts):
            for other in others:
                self._keep(other)

    def _keep(self, row: Model) -> None:
        self._values[id(row)] = _Values(row)

    def values_of(self, row: Model, age: timedelta) -> dict[str, Any]:
        """Return the columns of a row of the template, so much older, for a copy."""
        return self._values[id(row)].at_age(age)


class _Values:
    """The columns of a row, and those that are moments apart."""

    def __init__(self, row: Model) -> None:
        self._values: dict[str, Any] = {}
        self._moments: dict[str, datetime] = {}
        for field in row._meta.concrete_fields:
            value = getattr(row, field.attname)
            self._values[field.attname] = value
            if isinstance(value, datetime):
                self._moments[field.attname] = value

    def at_age(self, age: timedelta) -> dict[str, Any]:
        values = self._values.copy()
        for name, moment in self._moments.items():
            values[name] = moment - age
        return values


class RunCopies:
    """Copies that are inserted together."""

    def __init__(self) -> None:
        self._rows: dict[type[Model], list[Any]] = {table: [] for table in TABLES}

    def add(self, template: Template, age: timedelta, **columns: Any) -> None:
        """Add a copy that is so much older than the template, and whose run has these
        columns.
        """
        _Copy(template, self._rows, age).make(columns)

    def insert(self) -> None:
        """Insert the rows of all copies, in one transaction."""
        with transaction.atomic():
            for table, rows in self._rows.items():
                # A small batch has no rows in some tables.
                if rows:
                    copy_rows(table, rows)


@contextmanager
def writer() -> Iterator[Callable[[RunCopies], None]]:
    """Open a block with a function that inserts copies, in order. On PostgreSQL a
    thread does so while the next ones are made: all are committed when the block ends,
    and an error is raised by the next call or by the end of the block.
    """
    if connection.vendor != "postgresql":
        yield RunCopies.insert
        return
    inserted: list[Future[None]] = []

    def write(copies: RunCopies) -> None:
        # No more than two batches are in memory.
        if inserted:
            inserted.pop().result()
        inserted.append(thread.submit(copies.insert))

    with ThreadPoolExecutor(1) as thread:
        try:
            yield write
            if inserted:
                inserted.pop().result()
        finally:
            # The thread has its own connection, which nobody else would close.
            thread.submit(connections.close_all).result()


class _Copy:
    """One copy: ids of the template's rows -> ids of the copied rows."""

    def __init__(
        self, template: Template, rows: dict[type[Model], list[Any]], age: timedelta
    ) -> None:
        self._template = template
        self._rows = rows
        self._age = age
        self._run = uuid7()
        self._ids: dict[str, UUID] = {}
        for id_ in template.ids:
            self._ids[id_] = uuid7()
        for row in template.writes:
            task = Task(row.node, row.visit, row.index)
            new = write_id(self._run, row.line, task, row.position)
            self._ids[str(row.write)] = new

    def make(self, columns: dict[str, Any]) -> None:
        events = self._events(columns)
        checkpoints = self._checkpoints(events)
        self._requests()
        hashes = self._writes()
        self._decisions(hashes)
        self._drafts(hashes)
        self._run_row(columns, events[-1], checkpoints[-1])

    def _events(self, columns: dict[str, Any]) -> list[RunEvent]:
        end = LogEnd(0, "")
        rows: list[RunEvent] = []
        for event, payload in self._template.events:
            facts = self._with_new_ids(payload)
            if not rows:
                # The first event repeats what the run was started with.
                for name, value in columns.items():
                    if name in facts:
                        facts[name] = value
            new = NewEvent(
                event.type,
                facts,
                node=event.node,
                task=event.task,
                actor=event.actor,
            )
            chained, end = event_log.chain(
                self._run,
                end,
                [new],
                at=event.at - self._age,
                protection=PLAIN,
            )
            rows += chained
        self._rows[RunEvent] += rows
        return rows

    def _with_new_ids(self, value: Any, name: str = "") -> Any:
        """Return JSON in which ids and moments of the template are those of the copy."""
        if isinstance(value, dict):
            parts = {}
            for key, part in value.items():
                parts[key] = self._with_new_ids(part, key)
            return parts
        if isinstance(value, list):
            return [self._with_new_ids(part) for part in value]
        if not isinstance(value, str):
            return value
        if value in self._ids:
            return str(self._ids[value])
        if name.endswith("_at"):
            return (datetime.fromisoformat(value) - self._age).isoformat()
        return value

    def _checkpoints(self, events: list[RunEvent]) -> list[Checkpoint]:
        rows = []
        previous_hash = ""
        for checkpoint in self._template.checkpoints:
            row = self._copied(checkpoint, run_id=self._run)
            if row.parent:
                row.parent = self._ids[str(row.parent)]
            row.event_hash = events[row.event_seq - 1].hash
            previous_hash = content_hash(row, previous_hash, PLAIN)
            row.content_hash = previous_hash
            sealed_rows.seal(row, PLAIN)
            rows.append(row)
        self._rows[Checkpoint] += rows
        return rows

    def _requests(self) -> None:
        for request in self._template.requests:
            row = self._copied(request, run_id=self._run)
            if row.prepared_from:
                row.prepared_from = self._ids[str(row.prepared_from)]
            sealed_rows.seal(row, PLAIN)
            self._rows[ApprovalRequest].append(row)
        for reviewer in self._template.reviewers:
            row = self._copied(reviewer, id=None)
            row.request_id = self._ids[str(reviewer.request_id)]
            self._rows[RequestReviewer].append(row)

    def _writes(self) -> dict[str, str]:
        """Copy the writes. Returns the hashes of the template's -> those of the
        copy's.
        """
        hashes = {}
        for write in self._template.writes:
            row = self._copied(write, run_id=self._run, id=None)
            row.write = self._ids[str(write.write)]
            row.hash = pending_writes.hash_of(row, PLAIN)
            hashes[write.hash] = row.hash
            sealed_rows.seal(row, PLAIN)
            self._rows[PendingWrite].append(row)
        return hashes

    def _decisions(self, hashes: dict[str, str]) -> None:
        for receipt in self._template.receipts:
            row = self._copied(receipt, run_id=self._run)
            row.lines = []
            for line in self._with_new_ids(receipt.lines):
                row.lines.append({**line, "hash": hashes[line["hash"]]})
            sealed_rows.seal(row, PLAIN)
            self._rows[Receipt].append(row)
        for decision in self._template.decisions:
            row = self._copied(decision, run=self._run, id=uuid4())
            row.request_id = self._ids[str(decision.request_id)]
            # A deadline decides without a receipt.
            if decision.receipt_id is not None:
                row.receipt_id = self._ids[str(decision.receipt_id)]
            row.write = self._ids[str(decision.write)]
            row.seen_hash = hashes[decision.seen_hash]
            sealed_rows.seal(row, PLAIN)
            self._rows[Decision].append(row)

    def _drafts(self, hashes: dict[str, str]) -> None:
        for draft in self._template.drafts:
            row = self._copied(draft, run_id=self._run, id=uuid7())
            row.write = self._ids[str(draft.write)]
            row.seen_hash = hashes[draft.seen_hash]
            sealed_rows.seal(row, PLAIN)
            self._rows[Draft].append(row)

    def _run_row(
        self, columns: dict[str, Any], last_event: RunEvent, head: Checkpoint
    ) -> None:
        run = self._copied(self._template.run, **columns)
        run.head = head.id
        run.head_hash = head.content_hash
        seal = run_row.seal_columns(
            run,
            head=head.id,
            head_hash=head.content_hash,
            event_seq=last_event.seq,
            event_hash=last_event.hash,
            decisions=run.decisions,
        )
        for name, value in seal.items():
            setattr(run, name, value)
        run.event_seq = last_event.seq
        run.event_hash = last_event.hash
        self._rows[Run].append(run)

    def _copied(self, row: Row, **columns: Any) -> Any:
        """Return a copy of a row with its new id, or with these columns."""
        values = self._template.values_of(row, self._age)
        if isinstance(row, Run):
            values["id"] = self._run
        elif "id" not in columns:
            values["id"] = self._ids[str(row.pk)]
        values.update(columns)
        return new_row(type(row), **values)
