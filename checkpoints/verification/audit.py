"""The audit log of the installation: numbered without gaps, chained, sealed; and the heads of runs anchored in it."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from checkpoints import anchors, audit_chain
from checkpoints.audit_chain import ChainHead
from checkpoints.db.pages import pages
from checkpoints.models import AuditHead, AuditLine, Run, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault
from checkpoints.verification.removed_history import NOTHING_REMOVED, RemovedHistory, removed_histories
from checkpoints.verification.told_heads import told_heads
from orchestrator.engine.errors import CountersignError, TamperedRow

REMOVED = "run_removed"
"""The kind of the line that says that a run was removed as a whole, and where its log stood."""
TABLE = AuditLine._meta.db_table
HEAD_TABLE = AuditHead._meta.db_table


def audit() -> Iterator[Fault | None]:
    """Every line of the audit log, in order, and the runs that it anchors; None after each page without a fault.

    A run that is gone, or whose log does not hold the line that was anchored, is named; so is every head that was ever
    told and that the table does not hold.
    """
    head = ChainHead()
    for page in pages(AuditLine.objects.filter(number__isnull=False), "number"):
        for row in page:
            yield from _line(row, head)
            head = ChainHead(row.number or 0, row.hash)
        for row in page:
            # A line that is not as it was sealed is named above, and says nothing.
            if row.kind == anchors.KIND and fault_of(row, sealed_rows.PLAIN) is None:
                heads = anchors.heads_in(row)
                if heads is None:
                    yield _fault(row, "does not say which heads it anchors")
                yield from _anchored(heads or ())
        yield None
    yield from _kept_head(head)
    yield from told_heads()
    yield from _unnumbered()


def _kept_head(head: ChainHead) -> Iterator[Fault]:
    """The job's own row of where the chain stands. The job may have gone on since the last line was read."""
    try:
        kept = audit_chain.require_kept_head()
    except CountersignError as error:
        yield Fault("", "", HEAD_TABLE, HEAD_TABLE, error.message, error.code)
        return
    if kept.number < head.number:
        what = f"{TABLE} {kept.number + 1} to {head.number}"
        yield Fault("", "", TABLE, what, f"{what} have numbers that the job did not give")
        return
    there = AuditLine.objects.filter(number=kept.number).values_list("hash", flat=True).first()
    if kept.number > 0 and there is None:
        what = f"{TABLE} {head.number + 1} to {kept.number}"
        yield Fault("", "", TABLE, what, f"{what} are gone: the job numbered lines up to {kept.number}")
    elif kept.number > 0 and there != kept.hash:
        what = f"{TABLE} {kept.number}"
        yield Fault("", "", TABLE, what, f"{what} is not the line {kept.number} that the job chained")


def _unnumbered() -> Iterator[Fault]:
    """The lines that wait for their numbers: few, unless no worker runs."""
    for page in pages(AuditLine.objects.filter(number=None), "id"):
        for row in page:
            fault = fault_of(row, sealed_rows.PLAIN)
            if fault is not None:
                yield _fault(row, f"does not verify: {fault.reason}", fault.code)
        if audit_chain.is_late(page[0]):
            yield _fault(page[0], "has no number, though later lines have one")


def _fault(row: AuditLine, reason: str, code: str = TamperedRow.code_of_class) -> Fault:
    what = f"{TABLE} {row.number}" if row.number is not None else f"{TABLE} with the id {row.id}"
    return Fault("", "", TABLE, what, f"{what} {reason}", code)


def _line(row: AuditLine, before: ChainHead) -> Iterator[Fault]:
    if row.number != before.number + 1:
        what = f"{TABLE} {before.number + 1} to {(row.number or 0) - 1}"
        yield Fault("", "", TABLE, what, f"{what} are gone")
    try:
        sealed_rows.verify_row(row, sealed_rows.PLAIN)
        if row.number == before.number + 1 and audit_chain.line_hash(before.hash, row) != row.hash:
            yield _fault(row, "is not chained to the line before it")
    except CountersignError as error:
        yield _fault(row, f"does not verify: {error.message}", error.code)


def _anchored(anchored: Sequence[anchors.Head]) -> Iterator[Fault]:
    """The runs of these heads: three queries, whatever their number; two more where a run's line is not there."""
    heads = {(UUID(run), seq): hash_ for run, seq, hash_ in anchored}
    if not heads:
        return
    runs, seqs = {run for run, _ in heads}, {seq for _, seq in heads}
    now = dict(Run.objects.filter(id__in=runs).values_list("id", "event_seq"))
    events = RunEvent.objects.filter(run__in=runs, seq__in=seqs).values_list("run", "seq", "hash")
    there = {(run, seq): hash_ for run, seq, hash_ in events}
    removed = _removed({run for run, seq in heads if run in now and (run, seq) not in there})
    ended = _removed_whole({run for run, _ in heads if run not in now})
    for (run, seq), hash_ in heads.items():
        gone = removed.get(run, NOTHING_REMOVED).events
        if run not in now and seq <= ended.get(run, -1):
            continue
        if run not in now:
            yield _of_run(run, "is gone, though its head is anchored in the audit log")
        elif now[run] < seq:
            yield _of_run(run, f"stands at line {now[run]} of its log, before line {seq}, which is anchored")
        elif there.get((run, seq)) != hash_ and not ((run, seq) not in there and gone.ends_with(seq, hash_)):
            yield _of_run(run, f"has another line {seq} in its log than the one that is anchored")


def _removed_whole(runs: set[UUID]) -> dict[UUID, int]:
    """Those of these runs that were removed on purpose, with the number of the last line of their logs. A line of the
    audit log that is not as it was sealed says nothing.
    """
    lines = AuditLine.objects.filter(run__in=runs, kind=REMOVED) if runs else ()
    found: dict[UUID, int] = {}
    for line in lines:
        if line.run is None or fault_of(line, sealed_rows.PLAIN) is not None:
            continue
        match line.facts:
            case {"event_seq": int(seq)}:
                found[line.run] = seq
    return found


def _removed(runs: set[UUID]) -> dict[UUID, RemovedHistory]:
    """What was removed of these runs, as their logs say."""
    rows = Run.objects.filter(id__in=runs).only("encrypted", "hash_key") if runs else ()
    return removed_histories({run.id: sealed_rows.protection_of(run) for run in rows}) if runs else {}


def _of_run(run: UUID, reason: str) -> Fault:
    table = Run._meta.db_table
    what = f"{table} {run}"
    return Fault(str(run), "", table, what, f"{what} {reason}")
