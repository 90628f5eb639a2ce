"""Where the logs of runs stand is anchored in the audit log: a run that is deleted or put back as a whole shows there.

A job calls it every minute. Only runs that moved are looked at: each move writes a line of a log, and the numbers of
those rows rise, so the primary key leads to them, however many runs there are.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import transaction

from checkpoints import audit_log
from checkpoints.key_changes import record_key_changes
from checkpoints.models import AuditLine, Run, RunEvent
from checkpoints.models.audit_line import ROUTINE
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN

KIND = ROUTINE
ROWS = 5000
"""Lines of logs looked at in one query."""
HEADS = 200
"""Heads in one line of the audit log."""
AGAIN = 1000
"""Lines of logs looked at once more, for a transaction may take its numbers earlier and end later."""
KNOWN = 100
"""Audit lines that tell what of them is anchored already."""

Head = tuple[str, int, str]


def anchor_heads(lease: JobLease) -> Iterator[Step]:
    """The kind `anchor_heads`: say where the keys changed, anchor the heads that moved since the last turn, then chain
    the audit log.
    """
    record_key_changes()
    found = AuditLine.objects.filter(kind=KIND).order_by("-id")[:KNOWN]
    lines = [line for line in found if fault_of(line, PLAIN) is None]  # one that was changed says nothing
    known = {tuple(head) for line in lines for head in line.facts["heads"]}
    anchored = 0
    for moved, upto in moved_runs(int(lines[0].facts["upto"]) if lines else 0):
        heads = [head for head in heads_of(moved) if head not in known]
        with transaction.atomic():  # `upto` holds for all lines of a page, or for none
            for first in range(0, len(heads), HEADS):
                part = [list(head) for head in heads[first : first + HEADS]]
                audit_log.record(KIND, actor=None, heads=part, upto=upto)
        known.update(heads)
        anchored += len(heads)
        yield Step(anchored, note="heads anchored")
    audit_log.chain_lines()


def moved_runs(upto: int) -> Iterator[tuple[set[UUID], int]]:
    """The runs whose logs have rows behind this one, page by page, each with the last row looked at. A query a page."""
    # SQLite gives the numbers of newest rows again that were deleted.
    newest = RunEvent.objects.order_by("-id").values_list("id", flat=True).first() or 0
    start = max(0, min(upto, newest) - AGAIN)
    while True:
        rows = list(RunEvent.objects.filter(id__gt=start).order_by("id").values_list("id", "run_id")[:ROWS])
        if rows:
            start = rows[-1][0]
            yield {run for _, run in rows}, start
        if len(rows) < ROWS:
            return


def heads_of(runs: set[UUID]) -> list[Head]:
    """Where the logs of these runs stand now: run, number and hash of the last line."""
    rows: Any = Run.objects.filter(id__in=runs).order_by("id").values_list("id", "event_seq", "event_hash")
    return [(run.hex, seq, hash_) for run, seq, hash_ in rows]
