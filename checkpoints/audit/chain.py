"""The chain of the audit log: its lines are numbered and chained by one job, in the
order in which they were written.

The job never continues the chain in a table that lost lines which it had chained: its
own sealed row and the file that the settings name have the head of the chain. Otherwise
it would cover up a deletion.
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
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.values import canonical

log = structlog.get_logger(__name__)

BATCH = 500
"""The most lines that are numbered in one transaction."""
TAIL_BYTES = 4096
"""The number of bytes that are read from the end of the file to find its last line."""
LATE = timedelta(hours=1)
"""On PostgreSQL a transaction may end by so much later than one that took the id of its
line after it.
"""
WHAT_HELPS = (
    "nothing is numbered until that is looked into: verify_runs names what is missing, "
    "and `manage.py restored --audit-log-only` lets the chain go on"
)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The head of the audit log's chain: number and hash of its last line."""

    number: int = 0
    hash: str = ""


def chain_lines() -> int:
    """Number the lines that have no number yet, in the order in which they were
    written, and chain each to the one before. Returns how many. There is only one job
    that calls this. The new head is also published outside the database.

    Raises `TamperedRow`, or `WrongKey`, where the table does not hold the head that was
    published last, or a line without a number is older than one that has a number.
    Nothing is numbered then.
    """
    # The sealed row may have been put back with the table; the file lies elsewhere.
    _require_held(last_told_head(), "the file of AUDIT_HEAD_FILE")
    done = 0
    while chained := _chain_batch():
        done += chained
    if done:
        # Only after the commits: a head that is rolled back must never be published.
        tell_head(chain_head())
    return done


def _chain_batch() -> int:
    with transaction.atomic():
        # A worker that lost the job's lease may still be numbering beside this one.
        own_row = require_kept_head(lock=True)
        head = chain_head()
        if head != ChainHead(own_row.number, own_row.hash):
            raise TamperedRow(
                f"the audit log was chained up to line {own_row.number}, and its last "
                f"line is {head.number} or another {own_row.number}; {WHAT_HELPS}",
                row=sealed_rows.name_of(own_row),
            )
        rows = _next_batch()
        if not rows:
            return 0
        # The rows are in order of their ids, so the first one is the oldest.
        _require_newer(rows[0])
        keep_head(own_row, _numbered(rows, head))
    return len(rows)


def _next_batch() -> list[AuditLine]:
    return list(AuditLine.objects.filter(number=None).order_by("id")[:BATCH])


def chain_anew() -> ChainHead:
    """Number every line that has no number, in the caller's transaction, after the last
    line that the table holds, and save that head, whatever the job's own row has.
    Return it. The caller has written a line that says why.
    """
    # A row that is gone or forged is what this repairs, so it is not verified.
    own_row = AuditHead.objects.select_for_update().first() or AuditHead()
    head = chain_head()
    while rows := _next_batch():
        head = _numbered(rows, head)
    keep_head(own_row, head)
    return head


def _numbered(rows: list[AuditLine], head: ChainHead) -> ChainHead:
    """Number these lines after `head`, and chain each to the one before. Return the new
    head.
    """
    for row in rows:
        row.number = head.number + 1
        row.hash = line_hash(head.hash, row)
        head = ChainHead(row.number, row.hash)
    AuditLine.objects.bulk_update(rows, ["number", "hash"])
    return head


def require_kept_head(*, lock: bool = False) -> AuditHead:
    """Return the job's own row of the head of the chain. With `lock` nobody else
    numbers lines until the transaction ends. Raises `TamperedRow` if the row is gone or
    does not match its seal, and `WrongKey`.
    """
    rows = AuditHead.objects.select_for_update() if lock else AuditHead.objects.all()
    own_row = rows.first()
    if own_row is None:
        table = AuditHead._meta.db_table
        raise TamperedRow(
            f"the row of {table}, which says where the chain stands, is gone; "
            f"{WHAT_HELPS}",
            row=table,
        )
    try:
        sealed_rows.verify_row(own_row, sealed_rows.PLAIN)
    except CountersignError as error:
        # The same class, for a wrong key is another matter than a tampered row.
        raise type(error)(f"{error.message}; {WHAT_HELPS}", **error.facts) from error
    return own_row


def keep_head(own_row: AuditHead, head: ChainHead) -> None:
    """Save the head of the chain in the job's own row, in the caller's transaction."""
    own_row.number = head.number
    own_row.hash = head.hash
    own_row.at = timezone.now()
    sealed_rows.seal(own_row, sealed_rows.PLAIN)
    own_row.save()


def install_head(**_: Any) -> None:
    """Insert the job's own row in a database without any line. Connected to
    post_migrate.

    Lines without a row mean that the row was deleted: none is inserted.
    """
    # The signal also comes after this app was migrated back, and its tables are gone.
    tables = connection.introspection.table_names()
    if AuditHead._meta.db_table not in tables or AuditHead.objects.exists():
        return
    # Otherwise a migration would hide that the row was deleted.
    if not AuditLine.objects.exists():
        keep_head(AuditHead(), ChainHead())


def is_late(row: AuditLine) -> bool:
    """Return whether a line without a number existed before a line that has a number
    was chained: its number was removed, or it was inserted. One query.
    """
    newest = _last_numbered("id", "at")
    if newest is None or row.id > newest[0]:
        return False
    # On SQLite there is one writer at a time, so the order of ids is that of commits.
    return connection.vendor == "sqlite" or row.at < newest[1] - LATE


def _require_newer(row: AuditLine) -> None:
    if is_late(row):
        name = f"{AuditLine._meta.db_table} {row.id}"
        raise TamperedRow(
            f"{name} has no number, though later lines have one; {WHAT_HELPS}", row=name
        )


def _require_held(head: ChainHead | None, by: str) -> None:
    """Raise `TamperedRow` if the table does not hold a head that was published."""
    if head is None or head.number == 0:
        return
    lines = AuditLine.objects.filter(number=head.number)
    stored_hash = lines.values_list("hash", flat=True).first()
    if stored_hash != head.hash:
        name = f"{AuditLine._meta.db_table} {head.number}"
        reason = "is gone" if stored_hash is None else "is another line"
        raise TamperedRow(f"{name} {reason} than {by} says; {WHAT_HELPS}", row=name)


def chain_head() -> ChainHead:
    """Return the head of the chain in the table now."""
    last = _last_numbered("number", "hash")
    if last is None:
        return ChainHead()
    return ChainHead(last[0] or 0, last[1])


def _last_numbered(*columns: str) -> tuple[Any, ...] | None:
    """Return these columns of the last line that has a number."""
    lines = AuditLine.objects.filter(number__isnull=False).order_by("-number")
    return lines.values_list(*columns).first()


def line_hash(previous: str, row: AuditLine) -> str:
    """Return the hash over that of the line before, this one's number and its seal. It
    is keyed with the key that sealed the line, so it cannot be computed with access to
    the database alone. Raises `WrongKey`.
    """
    # The seal stands for the whole line.
    data = canonical.framed(
        "countersign audit 1", previous, row.number, bytes(row.seal or b"")
    )
    return sealed_rows.mac_of(
        row.seal_key, data, lambda: sealed_rows.name_of(row)
    ).hex()


def tell_head(head: ChainHead) -> None:
    """Publish the head of the chain in the process's log, and in the file that the
    settings name, because no database user reaches either. A file that cannot be
    written is an error in the log, and writing is tried again with the next head.
    """
    facts = {"at": timezone.now().isoformat(), "number": head.number, "hash": head.hash}
    log.info("audit_chain_head", **facts)
    name = conf().audit_head_file
    if not name:
        return
    try:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
    except OSError as error:
        log.error("audit_head_not_written", file=name, error=str(error))


def told_heads() -> Iterator[ChainHead]:
    """Read the heads in the file that the settings name, the oldest first; none if
    there is no file. Raises `OSError`, and `ValueError` for a line that is not a head.
    """
    path = _head_file()
    if path is None:
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield _head_of(line)


def last_told_head() -> ChainHead | None:
    """Return the last head in the file that the settings name; None if there is none.
    Raises `TamperedRow` if the file cannot be read.
    """
    path = _head_file()
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            # The job reads it every minute, and the file only grows.
            file.seek(max(0, path.stat().st_size - TAIL_BYTES), os.SEEK_SET)
            lines = file.read().splitlines()
        return _head_of(lines[-1].decode()) if lines else None
    except (OSError, ValueError) as error:
        raise TamperedRow(
            f"the file of AUDIT_HEAD_FILE cannot be read: {error}; {WHAT_HELPS}"
        ) from error


def _head_file() -> Path | None:
    name = conf().audit_head_file
    return Path(name) if name and Path(name).exists() else None


def _head_of(line: str) -> ChainHead:
    facts = json.loads(line)
    match facts:
        case {"number": int(number), "hash": str(hash_)}:
            return ChainHead(number, hash_)
    raise ValueError(f"{line.strip()[:200]!r} is no head of the audit log")
