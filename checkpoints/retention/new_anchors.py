"""Gives the row after a removed stretch its snapshot: it is verified and stored before
the run is locked, since a backend may take its time; and set under the lock, if that
row is still as it was read.
"""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.db import query_cache
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.ledger.checkpoint_rows import RunHeader
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

# What must be the same when the anchor is set: hashes and seal stand for all the rest.
_READ = (
    "id",
    "seq",
    "content_hash",
    "anchor",
    "snapshot_hash",
    "seal",
    "seal_key",
    "backend",
    "stored_size",
)


@frozen
class NewAnchor:
    """A row with its new snapshot, which is not saved yet: the names of the fields that
    changed, the values that were read, and the number and hash of the row before it.
    """

    row: Checkpoint
    changed: list[str]
    read: tuple[Any, ...]
    before: tuple[int, str]


def row_behind(run: Run, last: int) -> UUID | None:
    """Return the next row of the line after checkpoint `last`, if a load of it reads
    rows up to that one; else None.
    """
    rows = query_cache.select_values(_next_behind, run.id, last)
    if not rows:
        return None
    id_, anchor = rows[0]
    return UUID(str(id_)) if anchor <= last else None


def _next_behind(run: Any, last: Any) -> "QuerySet[Any]":
    rows: QuerySet[Any] = _behind(run, last).values_list("id", "anchor")[:1]
    return rows


def make_anchor(run: Run, checkpoint: UUID) -> NewAnchor | None:
    """Store the snapshot of a row; None if the row is gone. If the anchor is not set in
    the end, the sweep of payloads deletes the bytes. Raises `TamperedRow`, `WrongKey`,
    `SaveFailed`.
    """
    rows = reader.range_of(checkpoint)
    if not rows:
        return None
    header = RunHeader.of(run)
    row = rows[-1]
    document = reader.proven(rows, header.protection)
    # A row alone is an anchor already: no row before it matches this.
    before = (-1, "")
    if len(rows) > 1:
        before = (rows[-2].seq, rows[-2].content_hash)
    # The values as they are in the table, before the row gets its new ones.
    read = _as_read(row)
    changed = checkpoint_rows.anchor_anew(header, row, canonical.encode(document))
    return NewAnchor(row, changed, read, before)


def set_anchor(run: Run, last: int, anchor: NewAnchor) -> bool:
    """Save an anchor in a locked run. Returns False if the row, or checkpoint `last`
    before it, is not as it was when it was proven.
    """
    row = anchor.row
    # Both are read again, for the snapshot was proven before the run was locked.
    row_now = Checkpoint.objects.filter(id=row.id).first()
    rows_before = Checkpoint.objects.filter(run=run.id, seq=last)
    before = rows_before.values_list("seq", "content_hash").first()
    if row_now is None or _as_read(row_now) != anchor.read:
        return False
    if before != anchor.before:
        return False
    row.save(update_fields=anchor.changed)
    # Loads of the rows after it, which began with an earlier row, begin with this one.
    behind = _behind(run.id, last).filter(seq__gt=row.seq, anchor__lt=row.seq)
    behind.order_by().update(anchor=row.seq)
    return True


def _behind(run: Any, last: Any) -> "QuerySet[Any]":
    line = Checkpoint.objects.filter(run=run, seq=last).order_by().values("line")[:1]
    return Checkpoint.objects.filter(run=run, line=line, seq__gt=last).order_by("seq")


def _as_read(row: Checkpoint) -> tuple[Any, ...]:
    values = []
    for name in _READ:
        value = getattr(row, name)
        # A driver may return bytes as a view of them.
        if isinstance(value, memoryview):
            value = bytes(value)
        values.append(value)
    return tuple(values)
