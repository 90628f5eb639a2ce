"""Where the logs of runs stand is anchored in the audit log: a run that is deleted or put back as a whole shows there.

A job calls it every minute. Only runs that moved are looked at: each move writes a line of a log, and the numbers of
those rows rise, so the primary key leads to them, however many runs there are.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

import structlog
from django.db import transaction

from checkpoints import audit_chain, audit_log
from checkpoints.db.row_ids import highest_id
from checkpoints.key_changes import record_key_changes
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
"""Lines of logs looked at in one query."""
HEADS = 200
"""Heads in one line of the audit log."""
AGAIN = 1000
"""Lines of logs looked at once more, for a transaction may take its numbers earlier and end later."""
KNOWN = 100
"""Audit lines that tell what of them is anchored already."""
_PROVEN = [name for name in run_row.SEALED if name != "input"]

Head = tuple[str, int, str]


def anchor_heads(lease: JobLease) -> Iterator[Step]:
    """The kind `anchor_heads`: say where the keys changed, anchor the heads that moved since the last turn, then chain
    the audit log.

    A head that its run's row does not prove, or that stands before one that was anchored, is not signed. Raises
    `TamperedRow` or `WrongKey`, once all else is done, for the first of these, and where lines of the audit log or of
    logs were removed, renumbered or put in.
    """
    record_key_changes()
    _require_ids_in_order()
    refused: list[CountersignError] = []
    found = AuditLine.objects.filter(kind=KIND).order_by("-id")[:KNOWN]
    # One that was changed, or says nothing clear, says nothing.
    lines = [line for line in found if fault_of(line, PLAIN) is None and heads_in(line) is not None]
    known = {head for line in lines for head in heads_in(line) or ()}
    newest = _newest(known)
    anchored = 0
    for moved, upto in moved_runs(int(lines[0].facts["upto"]) if lines else 0):
        heads = [head for head in heads_of(moved, newest, refused) if head not in known]
        with transaction.atomic():  # `upto` holds for all lines of a page, or for none
            for first in range(0, len(heads), HEADS):
                part = [list(head) for head in heads[first : first + HEADS]]
                audit_log.record(KIND, actor=None, heads=part, upto=upto)
        known.update(heads)
        anchored += len(heads)
        yield Step(anchored, note="heads anchored")
    audit_chain.chain_lines()
    if refused:
        raise refused[0]


def heads_in(line: AuditLine) -> list[Head] | None:
    """Return the heads that a line anchors; None where it says nothing clear."""
    match line.facts:
        case {"heads": list(found), "upto": int()}:
            heads = [head for head in map(_head_of, found) if head is not None]
            return heads if len(heads) == len(found) else None
    return None


def _head_of(found: object) -> Head | None:
    match found:
        case [str(run), int(seq), str(hash_)]:
            try:
                return UUID(run).hex, seq, hash_
            except ValueError:
                return None
    return None


def _newest(heads: Iterable[Head]) -> dict[str, int]:
    """The highest of these numbers by run."""
    newest: dict[str, int] = {}
    for run, seq, _ in heads:
        newest[run] = max(seq, newest.get(run, 0))
    return newest


def _require_ids_in_order() -> None:
    """Raise where a line of a log has an id that no insert has reached: lines that are written from now on would not be
    behind it, and no run would be seen to move.
    """
    newest = _newest_row()
    if newest > highest_id(RunEvent):
        row = f"{RunEvent._meta.db_table} with the id {newest}"
        raise TamperedRow(f"{row} was put in, so heads of runs can't be anchored until it is removed", row=row)


def moved_runs(upto: int) -> Iterator[tuple[set[UUID], int]]:
    """The runs whose logs have rows behind this one, page by page, each with the last row looked at. A query a page."""
    # SQLite gives the numbers of newest rows again that were deleted.
    start = max(0, min(upto, _newest_row()) - AGAIN)
    while True:
        rows = list(RunEvent.objects.filter(id__gt=start).order_by("id").values_list("id", "run_id")[:ROWS])
        if rows:
            start = rows[-1][0]
            yield {run for _, run in rows}, start
        if len(rows) < ROWS:
            return


def _newest_row() -> int:
    return RunEvent.objects.order_by("-id").values_list("id", flat=True).first() or 0


def heads_of(runs: set[UUID], newest: dict[str, int], refused: list[CountersignError]) -> list[Head]:
    """Where the logs of these runs stand now: run, number and hash of the last line. One query.

    Left out, with the reason added to `refused`, are runs whose rows do not verify, and those that stand before the
    `newest` number that was anchored of them.
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
        what = name_of(run)
        reason = f"stands at line {run.event_seq} of its log, before line {anchored}, which is anchored"
        raise TamperedRow(f"{what} {reason}", row=what)
