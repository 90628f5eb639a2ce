"""The chain of the audit log: its lines are numbered and chained by one job, in the order in which they were written.

The job never chains on a table that lost what it chained before: its own sealed row and the file that the settings name
say where the chain stood. Otherwise it would sign away what somebody deleted.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from django.db import connection, transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.models import AuditHead, AuditLine
from checkpoints.sealing import sealed_rows
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, TamperedRow

log = structlog.get_logger(__name__)

BATCH = 500
"""Lines that are numbered in one transaction."""
TAIL_BYTES = 4096
"""So much is read from the end of the file to find its last line."""
LATE = timedelta(hours=1)
"""By so much a transaction on PostgreSQL may end later than one that took the id of its line after it."""
WHAT_HELPS = (
    "nothing is numbered until that is looked into: verify_runs names what is missing, and `manage.py restored"
    " --audit-log-only` lets the chain go on"
)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where the chain of the audit log stands: number and hash of its last line."""

    number: int = 0
    hash: str = ""


def chain_lines() -> int:
    """Number the lines that have no number yet, in the order in which they were written, and chain each to the one
    before. Returns how many; the job that calls it is one of a kind. The new head is told outside the database.

    Raises `TamperedRow`, or `WrongKey`, where the table does not hold the head that was told last, or a line without a
    number is older than one that has a number. Nothing is numbered then.
    """
    _require_held(last_told_head(), "the file of AUDIT_HEAD_FILE")
    done = 0
    while chained := _chain_batch():
        done += chained
    if done:
        tell_head(chain_head())
    return done


def _chain_batch() -> int:
    with transaction.atomic():
        kept = require_kept_head(lock=True)
        head = chain_head()
        if head != ChainHead(kept.number, kept.hash):
            raise TamperedRow(
                f"the audit log was chained up to line {kept.number}, and its last line is {head.number}"
                f" or another {kept.number}; {WHAT_HELPS}",
                row=sealed_rows.name_of(kept),
            )
        rows = list(AuditLine.objects.filter(number=None).order_by("id")[:BATCH])
        if not rows:
            return 0
        _require_newer(rows[0])
        keep_head(kept, _numbered(rows, head))
    return len(rows)


def chain_anew() -> ChainHead:
    """Number every line that has no number, in the caller's transaction, behind the last line that the table holds, and
    keep that head whatever the job's own row said. Return it. Who calls this has written a line that says why.
    """
    kept = AuditHead.objects.select_for_update().first() or AuditHead()
    head = chain_head()
    while rows := list(AuditLine.objects.filter(number=None).order_by("id")[:BATCH]):
        head = _numbered(rows, head)
    keep_head(kept, head)
    return head


def _numbered(rows: list[AuditLine], head: ChainHead) -> ChainHead:
    """Number these lines behind `head`, and chain each to the one before. Return the new head."""
    for row in rows:
        row.number = head.number + 1
        row.hash = line_hash(head.hash, row)
        head = ChainHead(row.number, row.hash)
    AuditLine.objects.bulk_update(rows, ["number", "hash"])
    return head


def require_kept_head(*, lock: bool = False) -> AuditHead:
    """Return the job's own row of where the chain stands. With `lock` nobody else numbers lines until the transaction
    ends. Raises `TamperedRow` where the row is gone or not as it was sealed, and `WrongKey`.
    """
    rows = AuditHead.objects.select_for_update() if lock else AuditHead.objects.all()
    kept = rows.first()
    if kept is None:
        table = AuditHead._meta.db_table
        raise TamperedRow(f"the row of {table}, which says where the chain stands, is gone; {WHAT_HELPS}", row=table)
    try:
        sealed_rows.verify_row(kept, sealed_rows.PLAIN)
    except CountersignError as error:
        raise type(error)(f"{error.message}; {WHAT_HELPS}", **error.facts) from error
    return kept


def keep_head(kept: AuditHead, head: ChainHead) -> None:
    """Write where the chain stands now into the job's own row, in the caller's transaction."""
    kept.number = head.number
    kept.hash = head.hash
    kept.at = timezone.now()
    sealed_rows.seal(kept, sealed_rows.PLAIN)
    kept.save()


def install_head(**_: Any) -> None:
    """Make the job's own row in a database without any line. Connected to post_migrate.

    Where there are lines and no row, somebody took the row away: none is made.
    """
    tables = connection.introspection.table_names()
    if AuditHead._meta.db_table not in tables or AuditHead.objects.exists():
        return
    if not AuditLine.objects.exists():
        keep_head(AuditHead(), ChainHead())


def is_late(row: AuditLine) -> bool:
    """Return whether a line without a number was there before a line that has a number was chained: somebody took its
    number away, or put it in. One query.
    """
    newest = AuditLine.objects.filter(number__isnull=False).order_by("-number").values_list("id", "at").first()
    if newest is None or row.id > newest[0]:
        return False
    # On SQLite there is one writer at a time, so the order of ids is that of commits.
    return connection.vendor == "sqlite" or row.at < newest[1] - LATE


def _require_newer(row: AuditLine) -> None:
    if is_late(row):
        what = f"{AuditLine._meta.db_table} {row.id}"
        raise TamperedRow(f"{what} has no number, though later lines have one; {WHAT_HELPS}", row=what)


def _require_held(told: ChainHead | None, by: str) -> None:
    """Raise where the table does not hold a head that was told."""
    if told is None or told.number == 0:
        return
    there = AuditLine.objects.filter(number=told.number).values_list("hash", flat=True).first()
    if there != told.hash:
        what = f"{AuditLine._meta.db_table} {told.number}"
        reason = "is gone" if there is None else "is another line"
        raise TamperedRow(f"{what} {reason} than {by} says; {WHAT_HELPS}", row=what)


def chain_head() -> ChainHead:
    """Return where the chain stands in the table now."""
    last = AuditLine.objects.filter(number__isnull=False).order_by("-number").values_list("number", "hash").first()
    return ChainHead(last[0] or 0, last[1]) if last else ChainHead()


def line_hash(previous: str, row: AuditLine) -> str:
    """The hash over that of the line before, this one's number and its seal, keyed with the key that sealed the line:
    whoever has the database alone cannot make it. Raises `WrongKey`.
    """
    data = canonical.framed("countersign audit 1", previous, row.number, bytes(row.seal or b""))
    return sealed_rows.mac_of(row.seal_key, data, lambda: sealed_rows.name_of(row)).hex()


def tell_head(head: ChainHead) -> None:
    """Say in the process's log, and in the file that the settings name, where the chain stands: no database user
    reaches either. A file that cannot be written is an error in the log, and the next head is written again.
    """
    facts = {"at": timezone.now().isoformat(), "number": head.number, "hash": head.hash}
    log.info("audit_chain_head", **facts)
    if conf().audit_head_file:
        try:
            with Path(conf().audit_head_file).open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")
        except OSError as error:
            log.error("audit_head_not_written", file=conf().audit_head_file, error=str(error))


def told_heads() -> Iterator[ChainHead]:
    """Read the heads in the file that the settings name, the oldest first; none where there is no file. Raises
    `OSError`, and `ValueError` for a line that is no head.
    """
    path = _head_file()
    if path is None:
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield _head_of(line)


def last_told_head() -> ChainHead | None:
    """Return the last head in the file that the settings name; None where there is none. Raises `TamperedRow` where
    the file cannot be read.
    """
    path = _head_file()
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES), os.SEEK_SET)
            lines = file.read().splitlines()
        return _head_of(lines[-1].decode()) if lines else None
    except (OSError, ValueError) as error:
        raise TamperedRow(f"the file of AUDIT_HEAD_FILE cannot be read: {error}; {WHAT_HELPS}") from error


def _head_file() -> Path | None:
    name = conf().audit_head_file
    return Path(name) if name and Path(name).exists() else None


def _head_of(line: str) -> ChainHead:
    facts = json.loads(line)
    match facts:
        case {"number": int(number), "hash": str(hash_)}:
            return ChainHead(number, hash_)
    raise ValueError(f"{line.strip()[:200]!r} is no head of the audit log")
