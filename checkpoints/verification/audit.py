"""Examines the audit log of the installation, which is numbered without gaps, chained
and sealed, and the heads of runs that are anchored in it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from checkpoints import anchors, time_stamps
from checkpoints.audit import chain as audit_chain
from checkpoints.audit.chain import ChainHead
from checkpoints.db.pages import pages
from checkpoints.models import AuditHead, AuditLine, Run, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.time_stamps import Stamp
from checkpoints.verification.base import NOT_VERIFIED, Fault
from checkpoints.verification.removed_history import (
    NOTHING_REMOVED,
    RemovedHistory,
    removed_histories,
)
from checkpoints.verification.told_heads import RENEWED, told_heads
from orchestrator.engine.errors import CountersignError, TamperedRow

REMOVED = "run_removed"
"""Kind of a line that records the removal of a whole run, and where its log ended."""
TABLE = AuditLine._meta.db_table
HEAD_TABLE = AuditHead._meta.db_table

Anchor = tuple[UUID, int]
"""Run and number of an anchored line of its log."""


def audit() -> Iterator[Fault | None]:
    """Yield the faults of every line of the audit log, in order, and of the runs that
    it anchors; and None after each page, so that a caller sees progress.

    Names each run that is gone or whose log does not hold the anchored line, and each
    published head that the table does not hold.
    """
    head = ChainHead()
    for page in pages(AuditLine.objects.filter(number__isnull=False), "number"):
        for row in page:
            yield from _faults_of_line(row, head)
            head = ChainHead(row.number or 0, row.hash)
        for row in page:
            yield from _faults_of_anchors(row)
            yield from _faults_of_stamp(row)
        yield None
    yield from _faults_of_kept_head(head)
    yield from told_heads()
    yield from _faults_of_unnumbered_lines()


def _faults_of_anchors(row: AuditLine) -> Iterator[Fault]:
    """Yield the faults of the runs that a line anchors, if it anchors any."""
    # An altered line has been reported already, and nothing in it counts.
    if row.kind != anchors.KIND or fault_of(row, sealed_rows.PLAIN) is not None:
        return
    heads = anchors.heads_in(row)
    if heads is None:
        yield _line_fault(row, "does not say which heads it anchors")
        return
    yield from _faults_of_anchored_runs(heads)


def _faults_of_stamp(row: AuditLine) -> Iterator[Fault]:
    """Yield a fault if a line with a time stamp names a head that is not in the table,
    or its token does not prove that head.
    """
    # An altered line has been reported already, and nothing in it counts.
    if row.kind != time_stamps.KIND or fault_of(row, sealed_rows.PLAIN) is not None:
        return
    stamp = time_stamps.stamp_of(row)
    if stamp is None:
        yield _line_fault(row, "does not say which line was stamped")
        return
    stamped = AuditLine.objects.filter(number=stamp.head.number, hash=stamp.head.hash)
    if not stamped.exists() and not _is_renewed_since(row):
        number = stamp.head.number
        yield _line_fault(row, f"has a time stamp of another line {number}")
    if time_stamps.can_verify():
        yield from _faults_of_token(row, stamp)


def _faults_of_token(row: AuditLine, stamp: Stamp) -> Iterator[Fault]:
    """Yield a fault if a token does not prove the head of its line, or states another
    time than the line says.
    """
    try:
        reason = time_stamps.fault_of_token(stamp.token, stamp.head.hash)
    except (OSError, ValueError) as error:
        # The file of certificates is at fault here, and the line may be right.
        name = type(error).__name__
        reason = f"cannot be verified, for TIME_STAMP_ROOTS cannot be read: {name}"
        yield _line_fault(row, f"has a time stamp that {reason}", NOT_VERIFIED)
        return
    if reason:
        yield _line_fault(row, f"has a time stamp that {reason}")
    elif time_stamps.stated_time(stamp.token) != stamp.at:
        yield _line_fault(row, "says another time than its time stamp states")


def _is_renewed_since(row: AuditLine) -> bool:
    """Return whether all lines were resealed after this one, which gave each line
    before it another hash.
    """
    renewals = AuditLine.objects.filter(kind=RENEWED, id__gt=row.id)
    return any(fault_of(line, sealed_rows.PLAIN) is None for line in renewals)


def _faults_of_kept_head(head: ChainHead) -> Iterator[Fault]:
    """Yield a fault unless the chain agrees with the job's own row of where it stands.
    The job may have numbered more lines since the last one was read.
    """
    try:
        kept_head = audit_chain.require_kept_head()
    except CountersignError as error:
        yield Fault("", "", HEAD_TABLE, HEAD_TABLE, error.message, error.code)
        return
    if kept_head.number < head.number:
        yield _table_fault(
            f"{kept_head.number + 1} to {head.number}",
            "have numbers that the job did not give",
        )
        return
    # Number 0 stands for an audit log without lines.
    if kept_head.number <= 0:
        return
    stored_hash = (
        AuditLine.objects.filter(number=kept_head.number)
        .values_list("hash", flat=True)
        .first()
    )
    if stored_hash is None:
        yield _table_fault(
            f"{head.number + 1} to {kept_head.number}",
            f"are gone: the job numbered lines up to {kept_head.number}",
        )
    elif stored_hash != kept_head.hash:
        yield _table_fault(
            f"{kept_head.number}",
            f"is not the line {kept_head.number} that the job chained",
        )


def _faults_of_unnumbered_lines() -> Iterator[Fault]:
    """Yield the faults of the lines that wait for a number: few, unless no worker runs."""
    for page in pages(AuditLine.objects.filter(number=None), "id"):
        for row in page:
            fault = fault_of(row, sealed_rows.PLAIN)
            if fault is not None:
                yield _line_fault(row, f"does not verify: {fault.reason}", fault.code)
        # Rows come in order of their ids, so the oldest of a page shows whether any is
        # late.
        if audit_chain.is_late(page[0]):
            yield _line_fault(page[0], "has no number, though later lines have one")


def _table_fault(
    which: str, reason: str, code: str = TamperedRow.code_of_class
) -> Fault:
    """Build a fault of lines of the audit log; `which` names them after the table."""
    what = f"{TABLE} {which}"
    return Fault("", "", TABLE, what, f"{what} {reason}", code)


def _line_fault(
    row: AuditLine, reason: str, code: str = TamperedRow.code_of_class
) -> Fault:
    if row.number is None:
        return _table_fault(f"with the id {row.id}", reason, code)
    return _table_fault(f"{row.number}", reason, code)


def _faults_of_line(row: AuditLine, before: ChainHead) -> Iterator[Fault]:
    """Yield the faults of a line's number, seal and chain."""
    follows_directly = row.number == before.number + 1
    if not follows_directly:
        yield _table_fault(
            f"{before.number + 1} to {(row.number or 0) - 1}", "are gone"
        )
    try:
        sealed_rows.verify_row(row, sealed_rows.PLAIN)
        # After a gap the hash of the previous line is unknown.
        if follows_directly and audit_chain.line_hash(before.hash, row) != row.hash:
            yield _line_fault(row, "is not chained to the line before it")
    except CountersignError as error:
        yield _line_fault(row, f"does not verify: {error.message}", error.code)


@dataclass(frozen=True, slots=True)
class _LogsOfRuns:
    """The present rows of the runs whose heads an audit line anchors.

    `last_lines`: the number of the last line of each run that is there. `hashes`: the
    hash of each line that is there, by run and number. `removed`: what was removed of
    the runs without their anchored line. `ended`: the number of the last line of each
    run that was removed as a whole.
    """

    last_lines: dict[UUID, int]
    hashes: dict[Anchor, str]
    removed: dict[UUID, RemovedHistory]
    ended: dict[UUID, int]


def _faults_of_anchored_runs(heads: Sequence[anchors.Head]) -> Iterator[Fault]:
    """Yield a fault for each run that does not hold the line anchored by these heads.

    Three queries, however many heads there are; two more where a run's line is missing.
    """
    hash_by_anchor = {(UUID(run), seq): hash_ for run, seq, hash_ in heads}
    if not hash_by_anchor:
        return
    logs = _logs_of_runs(hash_by_anchor)
    for (run, seq), hash_ in hash_by_anchor.items():
        reason = _reason_against(logs, run, seq, hash_)
        if reason:
            yield _run_fault(run, reason)


def _logs_of_runs(anchored: Collection[Anchor]) -> _LogsOfRuns:
    runs = {run for run, _ in anchored}
    seqs = {seq for _, seq in anchored}
    last_lines = dict(Run.objects.filter(id__in=runs).values_list("id", "event_seq"))
    events = RunEvent.objects.filter(run__in=runs, seq__in=seqs)
    hashes = {}
    for run, seq, hash_ in events.values_list("run", "seq", "hash"):
        hashes[run, seq] = hash_

    # Mostly each run has its line; then what was removed of it takes no query.
    without_line = set()
    for run, seq in anchored:
        if run in last_lines and (run, seq) not in hashes:
            without_line.add(run)
    return _LogsOfRuns(
        last_lines,
        hashes,
        removed=_removed_histories(without_line),
        ended=_ends_of_removed_runs(runs - last_lines.keys()),
    )


def _reason_against(logs: _LogsOfRuns, run: UUID, seq: int, hash_: str) -> str:
    """Return why a run's log does not hold an anchored line; empty if it does, or where
    the line was removed on purpose.
    """
    if run not in logs.last_lines:
        # Its log may have gone on between the anchor and its removal.
        if seq <= logs.ended.get(run, -1):
            return ""
        return "is gone, though its head is anchored in the audit log"

    last_line = logs.last_lines[run]
    if last_line < seq:
        return (
            f"stands at line {last_line} of its log, before line {seq}, which is"
            " anchored"
        )

    stored_hash = logs.hashes.get((run, seq))
    if stored_hash == hash_:
        return ""
    removed_events = logs.removed.get(run, NOTHING_REMOVED).events
    if stored_hash is None and removed_events.ends_with(seq, hash_):
        return ""
    return f"has another line {seq} in its log than the one that is anchored"


def _ends_of_removed_runs(runs: set[UUID]) -> dict[UUID, int]:
    """Return the runs among these that were removed on purpose, with the number of the
    last line of their logs. Ignores altered lines of the audit log. One query, none for
    no runs.
    """
    if not runs:
        return {}
    ends: dict[UUID, int] = {}
    for line in AuditLine.objects.filter(run__in=runs, kind=REMOVED):
        if line.run is None or fault_of(line, sealed_rows.PLAIN) is not None:
            continue
        match line.facts:
            case {"event_seq": int(seq)}:
                ends[line.run] = seq
    return ends


def _removed_histories(runs: set[UUID]) -> dict[UUID, RemovedHistory]:
    """Return what was removed of these runs, as their logs record it. Two queries, none
    for no runs.
    """
    if not runs:
        return {}
    rows = Run.objects.filter(id__in=runs).only("encrypted", "hash_key")
    protections = {run.id: sealed_rows.protection_of(run) for run in rows}
    return removed_histories(protections)


def _run_fault(run: UUID, reason: str) -> Fault:
    table = Run._meta.db_table
    what = f"{table} {run}"
    return Fault(str(run), "", table, what, f"{what} {reason}")
