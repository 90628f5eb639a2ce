"""The row behind a removed stretch gets a snapshot of its own: proven and put before the run is locked, for a backend
may take its time; set under the lock, where that row is as it was read.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.db import query_cache
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.ledger.checkpoint_rows import RunHeader
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import sealed_rows
from orchestrator.engine import canonical
from orchestrator.engine.frozen import frozen

_READ = ("id", "seq", "content_hash", "anchor", "snapshot_hash", "seal", "seal_key", "backend", "stored_size")


@frozen
class NewAnchor:
    """A row with its new snapshot, which is not saved yet: the names of the fields that changed, what was read of it,
    and the number and hash of the row before it.
    """

    row: Checkpoint
    changed: list[str]
    read: tuple[Any, ...]
    before: tuple[int, str]


def row_behind(run: Run, last: int) -> UUID | None:
    """The next row of the line behind checkpoint `last`, where a load of it reads rows up to that one."""
    found = query_cache.select_values(_next_behind, run.id, last)
    return UUID(str(found[0][0])) if found and found[0][1] <= last else None


def _next_behind(run: Any, last: Any) -> "QuerySet[Any]":
    rows: QuerySet[Any] = _behind(run, last).values_list("id", "anchor")[:1]
    return rows


def make_anchor(run: Run, wanted: UUID) -> NewAnchor | None:
    """Put the snapshot of a row; None where the row is gone. Where the anchor is not set in the end, the sweep of
    payloads takes the bytes away. Raises `TamperedRow`, `WrongKey`, `SaveFailed`.
    """
    rows = reader.range_of(wanted)
    if not rows:
        return None
    header, row = RunHeader.of(run), rows[-1]
    document = reader.proven(rows, header.protection)
    read, before = _as_read(row), (rows[-2].seq, rows[-2].content_hash) if len(rows) > 1 else (-1, "")
    return NewAnchor(row, checkpoint_rows.anchor_anew(header, row, canonical.encode(document)), read, before)


def set_anchor(run: Run, last: int, anchor: NewAnchor) -> bool:
    """Save it in a locked run. False: the row, or checkpoint `last` before it, is not as it was when it was proven."""
    now = Checkpoint.objects.filter(id=anchor.row.id).first()
    before = Checkpoint.objects.filter(run=run.id, seq=last).values_list("seq", "content_hash").first()
    if now is None or _as_read(now) != anchor.read or before != anchor.before:
        return False
    anchor.row.save(update_fields=anchor.changed)
    behind = _behind(run.id, last).filter(seq__gt=anchor.row.seq, anchor__lt=anchor.row.seq)
    _begin_with(
        RunHeader.of(run), anchor.row, [(pk, bytes(seal or b"")) for pk, seal in behind.values_list("id", "seal")]
    )
    return True


def _behind(run: Any, last: Any) -> "QuerySet[Any]":
    line = Checkpoint.objects.filter(run=run, seq=last).order_by().values("line")[:1]
    return Checkpoint.objects.filter(run=run, line=line, seq__gt=last).order_by("seq")


def _as_read(row: Checkpoint) -> tuple[Any, ...]:
    found = [getattr(row, name) for name in _READ]
    return tuple(bytes(one) if isinstance(one, memoryview) else one for one in found)


def _begin_with(header: RunHeader, row: Checkpoint, behind: Sequence[tuple[UUID, bytes]]) -> None:
    """The rows behind that were loaded from an earlier one begin with this row. A seal of the first format covers
    that, so such a row is verified and sealed anew.
    """
    plain = [pk for pk, seal in behind if len(seal) != sealed_rows.MAC_BYTES]
    Checkpoint.objects.filter(id__in=plain).update(anchor=row.seq)
    for one in Checkpoint.objects.filter(id__in={pk for pk, _ in behind} - set(plain)):
        sealed_rows.verify_row(one, header.protection)
        one.anchor = row.seq
        one.save(update_fields=checkpoint_rows.reseal_anchor(header, one))
