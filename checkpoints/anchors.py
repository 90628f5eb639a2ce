"""Anchors the heads of the runs' logs in the audit log, which shows where a run is
deleted, or put back to an earlier state, as a whole.

A job does this every minute. Only runs that moved are looked at: each move writes an
event, and the ids of those rows rise, so the primary key leads to them, however many
runs there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import structlog
from django.db import transaction

from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.audit.key_changes import record_key_changes
from checkpoints.db.row_ids import highest_id
from checkpoints.models import AuditLine, Run, RunEvent
from checkpoints.models.audit_line import ROUTINE
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing import run_row
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, name_of
from orchestrator.engine.errors import CountersignError, TamperedRow

log = structlog.get_logger(__name__)

KIND = ROUTINE
ROWS = 5000
"""The most events looked at in one query."""
HEADS = 200
"""The most heads in one line of the audit log."""
AGAIN = 1000
"""The most events looked at once more, because a transaction may take its ids earlier
and end later.
"""
KNOWN = 100
"""The most audit lines that are read to find which of their heads are anchored already.
"""
# The seal covers the hash of an input and not the input, which may be long.
_PROVEN = [name for name in run_row.SEALED if name != "input"]

Head = tuple[str, int, str]
"""A run's id, and the number and hash of the last event of its log."""


def anchor_heads(lease: JobLease) -> Iterator[Step]:
    """The job `anchor_heads`: record where the keys changed, anchor the heads that
    moved since the last turn, then chain the audit log.

    A head that its run's row does not prove, or that stands before one that was
    anchored, is not anchored. Raises `TamperedRow` or `WrongKey`, once all else is
    done, for the first of these, and where lines of the audit log or events were
    removed, renumbered or put in.
    """
    record_key_changes()
    _require_ids_in_order()
    upto, anchored_heads = _latest_anchors()
    newest = _newest(anchored_heads)
    refused: list[CountersignError] = []
    count = 0
    for runs, last_row in moved_runs(upto):
        heads = [
            head
            for head in heads_of(runs, newest, refused)
            # Events are looked at more than once, and a head is anchored once.
            if head not in anchored_heads
        ]
        _record_heads(heads, last_row)
        anchored_heads.update(heads)
        count += len(heads)
        yield Step(count, note="heads anchored")
    # Last, so that the heads of this turn are chained with it.
    audit_chain.chain_lines()
    if refused:
        raise refused[0]


def _latest_anchors() -> tuple[int, set[Head]]:
    """Return the event up to which heads are anchored, and the heads that were anchored
    last.
    """
    heads: set[Head] = set()
    newest_upto: int | None = None
    for line in AuditLine.objects.filter(kind=KIND).order_by("-id")[:KNOWN]:
        heads_of_line = heads_in(line)
        # A line that was changed, or is unclear, counts for nothing.
        if heads_of_line is None or fault_of(line, PLAIN) is not None:
            continue
        if newest_upto is None:
            newest_upto = int(line.facts["upto"])
        heads.update(heads_of_line)
    return newest_upto or 0, heads


def _record_heads(heads: Sequence[Head], upto: int) -> None:
    # `upto` holds for all lines of a page, or for none.
    with transaction.atomic():
        for first in range(0, len(heads), HEADS):
            part = [list(head) for head in heads[first : first + HEADS]]
            audit_log.record(KIND, actor=None, heads=part, upto=upto)


def heads_in(line: AuditLine) -> list[Head] | None:
    """Return the heads that a line anchors; None if it is unclear."""
    match line.facts:
        case {"heads": list(entries), "upto": int()}:
            heads = [head for head in map(_head_of, entries) if head is not None]
            return heads if len(heads) == len(entries) else None
    return None


def _head_of(entry: object) -> Head | None:
    match entry:
        case [str(run), int(seq), str(hash_)]:
            try:
                return UUID(run).hex, seq, hash_
            except ValueError:
                return None
    return None


def _newest(heads: Iterable[Head]) -> dict[str, int]:
    """Return the highest of these numbers by run."""
    newest: dict[str, int] = {}
    for run, seq, _ in heads:
        newest[run] = max(seq, newest.get(run, 0))
    return newest


def _require_ids_in_order() -> None:
    """Raise `TamperedRow` if an event has an id that no insert has reached: events that
    are written from now on would not come after it, so no run would be seen to move.
    """
    newest = _newest_row()
    if newest > highest_id(RunEvent):
        row = f"{RunEvent._meta.db_table} with the id {newest}"
        raise TamperedRow(
            f"{row} was put in, so heads of runs can't be anchored until it is removed",
            row=row,
        )


def moved_runs(upto: int) -> Iterator[tuple[set[UUID], int]]:
    """Yield the runs whose logs have rows after this one, page by page, each with the
    last row looked at. One query for each page.
    """
    # SQLite reuses the ids of newest rows that were deleted.
    start = max(0, min(upto, _newest_row()) - AGAIN)
    while True:
        behind = RunEvent.objects.filter(id__gt=start).order_by("id")
        rows = list(behind.values_list("id", "run_id")[:ROWS])
        if rows:
            start = rows[-1][0]
            yield {run for _, run in rows}, start
        if len(rows) < ROWS:
            return


def _newest_row() -> int:
    return RunEvent.objects.order_by("-id").values_list("id", flat=True).first() or 0


def heads_of(
    runs: set[UUID], newest: dict[str, int], refused: list[CountersignError]
) -> list[Head]:
    """Return the heads of these runs as they are now. One query.

    Runs whose rows do not verify, and those that stand before the `newest` number that
    was anchored of them, are left out, and the reason is added to `refused`.
    """
    heads: list[Head] = []
    for run in Run.objects.filter(id__in=runs).order_by("id").only(*_PROVEN):
        try:
            run_row.verify_run_row(run)
            _require_forward(run, newest.get(run.id.hex, 0))
        except CountersignError as error:
            log.error("head_not_anchored", run=str(run.id), error=error.message)
            refused.append(error)
        else:
            heads.append((run.id.hex, run.event_seq, run.event_hash))
    return heads


def _require_forward(run: Run, anchored: int) -> None:
    if run.event_seq < anchored:
        name = name_of(run)
        raise TamperedRow(
            f"{name} stands at line {run.event_seq} of its log, "
            f"before line {anchored}, which is anchored",
            row=name,
        )
