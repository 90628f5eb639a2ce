"""Rows of checkpoints read back: the payload at a checkpoint, folded from one range of
rows, and the head of a run, whose rows must be as they were sealed. The ledger and the
timeline call it.
"""

from collections.abc import Iterable, Sequence
from functools import cache, reduce
from typing import Any
from uuid import UUID

from checkpoints import payloads
from checkpoints.db import rows as db_rows
from checkpoints.ledger.checkpoint_rows import Head, Payload, content_hash, sizes_of
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import run_row, sealed_columns, sealed_rows
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical, ops
from orchestrator.engine.values.ops import Op

Document = dict[str, Any]


def range_of(checkpoint: UUID) -> list[Checkpoint]:
    """Return the rows from which the payload of a checkpoint is folded, oldest first:
    one query.
    """
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    return db_rows.fetch_rows(Checkpoint, names, _range_sql(), [checkpoint])


def range_at(run: UUID, seq: int) -> list[Checkpoint]:
    """Return the rows of `range_of` for the checkpoint of a run with this number: one
    query.
    """
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    return db_rows.fetch_rows(Checkpoint, names, _range_at_sql(), [run, seq])


def range_with_run(
    checkpoint: UUID,
    further_columns: tuple[str, ...] = (),
) -> tuple[list[Checkpoint], Run | None]:
    """Return the rows of `range_of`, and the run's row: the columns that its seal
    covers, and `further_columns`; None if there are no rows. One query.
    """
    names = (*run_row.SEALED, *further_columns)
    return db_rows.fetch_range(
        Checkpoint, _CHAINED, Run, names, _range_sql(names), [checkpoint]
    )


def ranges_of(checkpoints: Sequence[UUID]) -> dict[UUID, list[Checkpoint]]:
    """Return the rows of `range_of` for several checkpoints, by the checkpoint: one
    query.
    """
    columns = (f.attname for f in Checkpoint._meta.concrete_fields)
    names = (*columns, "range_end")
    rows = db_rows.fetch_rows(
        Checkpoint, names, _ranges_sql(len(checkpoints)), checkpoints
    )
    ranges: dict[UUID, list[Checkpoint]] = {}
    for row in rows:
        range_end = row.__dict__.pop("range_end")
        # It is no field, so it comes as the driver gives it.
        if not isinstance(range_end, UUID):
            range_end = UUID(range_end)
        ranges.setdefault(range_end, []).append(row)
    return ranges


@cache
def _ranges_sql(count: int) -> str:
    table = Checkpoint._meta.db_table
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    columns = db_rows.named_columns(Checkpoint, names, "c")
    places = ", ".join(["%s"] * count)
    return (
        f"SELECT {columns}, h.id FROM {table} h {_joined_range()} "  # noqa: S608
        f"WHERE h.id IN ({places}) ORDER BY h.id, c.seq"
    )


_CHAINED = (
    "id",
    "run_id",
    "line",
    "seq",
    "superstep",
    "source",
    "fingerprint",
    "format",
    "committed",
    "kept",
    "event_seq",
    "event_hash",
    "change_hash",
    "content_hash",
    "backend",
    "change",
)
"""The columns that chaining and folding need of the rows between the first and the last
of a range.
"""


@cache
def _range_sql(run: tuple[str, ...] = ()) -> str:
    """Return the query as a text that is kept: compiling it costs many times what the
    rows of a small state do. The run's columns come with the last row alone.
    """
    table = Checkpoint._meta.db_table
    names = db_rows.attributes_of(Checkpoint)
    columns = db_rows.named_columns(Checkpoint, names, "c")
    joined_run = ""
    if run:
        columns += f", {db_rows.named_columns(Run, run, 'r')}"
        runs = Run._meta.db_table
        joined_run = f" LEFT JOIN {runs} r ON r.id = h.run_id AND c.id = h.id"
    return (
        f"SELECT {columns} FROM {table} h {_joined_range()}{joined_run} "  # noqa: S608
        "WHERE h.id = %s ORDER BY c.seq"
    )


@cache
def _range_at_sql() -> str:
    table = Checkpoint._meta.db_table
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    columns = db_rows.named_columns(Checkpoint, names, "c")
    return (
        f"SELECT {columns} FROM {table} h {_joined_range()} "  # noqa: S608
        "WHERE h.run_id = %s AND h.seq = %s ORDER BY c.seq"
    )


def _joined_range() -> str:
    """Return the JOIN that adds to each row `h` the rows `c` of its range."""
    # No seal covers an anchor: one that lies after its row must not make the row look
    # gone.
    first = "CASE WHEN h.anchor < h.seq THEN h.anchor ELSE h.seq END"
    return (
        f"JOIN {Checkpoint._meta.db_table} c ON c.run_id = h.run_id "
        f"AND c.line = h.line AND c.seq BETWEEN {first} AND h.seq"
    )


def bytes_of(
    row: Checkpoint,
    column: str,
    protection: Protection | None = None,
    *,
    stored: bytes | None = None,
) -> bytes:
    """Return the canonical bytes of a row's change or snapshot, wherever a backend
    keeps them; empty if there are none. `stored` are those of `stored_bytes`, if they
    were read already.

    Raises `TamperedRow` and `WrongKey`; with the run's `protection` also if they are
    not encrypted as the run is.
    """
    if stored is None:
        stored = stored_bytes(row, column)
    if not stored:
        return b""
    if protection is not None:
        sealed_rows.require_protection(row, column, stored, protection)
    return sealed_columns.read_bytes(row, column, stored)


def stored_bytes(row: Checkpoint, column: str) -> bytes:
    """Return the bytes of a row's change or snapshot as its backend keeps them; empty
    if there are none. Raises what the backend raises.
    """
    in_row = bytes(getattr(row, column))
    if not in_row or row.backend == payloads.DATABASE:
        return in_row
    name = payloads.name_of(row.run_id, row.id, column)
    return payloads.get_payload(row.backend, name, in_row)


def parts_of(
    rows: Sequence[Checkpoint],
    protection: Protection | None = None,
) -> list[bytes]:
    """Return the bytes from which a range of rows is folded: the snapshot of the first,
    or its change if that is the whole, and the changes of those after it. Raises
    `TamperedRow` if the snapshot is gone.
    """
    first = rows[0]
    # The sealed hash decides, not the column: emptying that must not hide a snapshot.
    if first.snapshot_hash:
        if not first.snapshot:
            raise _tampered(first, f"{first} has lost its snapshot")
        snapshot = bytes_of(first, "snapshot", protection)
        changes = [bytes_of(row, "change", protection) for row in rows[1:]]
        return [snapshot, *changes]
    changes = [bytes_of(row, "change", protection) for row in rows]
    if not changes[0].startswith(WHOLE):
        raise _tampered(first, f"{first} is not the whole of a state to load from")
    return changes


WHOLE = b'[{"op":"set",'
"""The beginning of the canonical bytes of a change that sets the whole document."""


def folded(parts: Sequence[bytes]) -> Document:
    """Return the document that the parts of a range are folded to."""
    document: Document = {}
    changes = parts
    # Else the first part is a snapshot.
    if not parts[0].startswith(WHOLE):
        document = canonical.loads(parts[0])
        changes = parts[1:]
    for change in changes:
        # Both are parsed for this alone, so a long list is not copied for each op.
        document = reduce(ops.apply_to_own, canonical.loads(change), document)
    return document


def changed_channels(document: Document, change: Iterable[Op]) -> Document:
    """Return the document after a change."""
    return reduce(ops.apply, change, document)


def document_at(checkpoint: UUID) -> Document | None:
    """Return the document at a checkpoint; None if there is no such row.

    One query.
    """
    rows = range_of(checkpoint)
    if not rows:
        return None
    return folded(parts_of(rows))


def proven(rows: Sequence[Checkpoint], protection: Protection) -> Document:
    """Return the document at the last of these rows, verified against its seal. Raises
    `TamperedRow`, `WrongKey`.
    """
    parts = parts_of(rows, protection)
    _verify(rows, parts, protection)
    return folded(parts)


def head_of(rows: Sequence[Checkpoint], protection: Protection) -> Head:
    """Return the head that the last of these rows is, verified against its seal. Raises
    `TamperedRow`, `WrongKey`.
    """
    parts = parts_of(rows, protection)
    _verify(rows, parts, protection)

    # Only the newest row may be a recovery point.
    newest = rows[-1]
    kept_rows = [row for row in rows[-2:] if row.kept]
    if not kept_rows:
        raise _tampered(newest, f"the checkpoint before {newest} is missing")
    loose: tuple[bytes, ...] = ()
    if not newest.kept:
        loose = tuple(canonical.encode(op) for op in canonical.loads(parts[-1]))

    # Counted as by the worker that wrote the rows, so that snapshots come where they
    # would have come without a takeover.
    since = 0
    for row, change in zip(rows[1:], parts[1:], strict=True):
        if row.kept:
            since += len(change)
    payload = Payload.of(folded(parts))
    return Head(
        id=newest.id,
        seq=newest.seq,
        parent=newest.parent,
        kept=newest.kept,
        source=newest.source,
        payload=payload,
        hash=kept_rows[-1].content_hash,
        # The seq where this very load began, which was verified; no seal covers the
        # row's own anchor.
        anchor=rows[0].seq,
        since=since,
        sizes=sizes_of(payload),
        logged=newest.event_seq,
        loose=loose,
    )


def _verify(
    rows: Sequence[Checkpoint],
    parts: Sequence[bytes],
    protection: Protection,
) -> None:
    """Check the seals of the first and the last row, the chain of hashes between them,
    and the payloads. Raises `TamperedRow`, `WrongKey`.
    """
    first = rows[0]
    last = rows[-1]
    sealed_rows.verify_row(first, protection)
    if last.id != first.id:
        sealed_rows.verify_row(last, protection)

    # The rows between them are verified by their hashes: the last seal covers the
    # chain.
    erased = ErasedRows.of_rows(rows)
    before: Checkpoint | None = None
    for row, part in zip(rows, parts, strict=True):
        begins = before is None
        require_hashed(row, part, protection, begins=begins, erased=erased)
        if before is not None:
            if row.seq != before.seq + 1:
                raise _tampered(row, f"checkpoints before {row} are missing")
            if row.content_hash != content_hash(row, before.content_hash, protection):
                raise _tampered(
                    row, f"{row} is not chained to the checkpoint before it"
                )
        before = row


def require_hashed(
    row: Checkpoint,
    data: bytes,
    protection: Protection,
    *,
    begins: bool = False,
    erased: ErasedRows | None = None,
) -> None:
    """Raise `TamperedRow` if a row's payload is neither what was hashed nor what an
    erasure has put there. `begins`: a load begins with it, so it is the snapshot if
    there is one.
    """
    column = "change"
    expected_hash = row.change_hash
    if begins and row.snapshot_hash:
        column = "snapshot"
        expected_hash = row.snapshot_hash
    if protection.digest(data) == expected_hash:
        return
    erased = erased or ErasedRows.of_rows([row])
    if not erased.covers(row, column, data, protection):
        raise altered_payload(row)


def altered_payload(row: Checkpoint) -> TamperedRow:
    """Return the refusal of a row whose payload has another hash than it seals."""
    return _tampered(row, f"the payload of {row} is not what was sealed")


def _tampered(row: Checkpoint, what: str) -> TamperedRow:
    return TamperedRow(
        what, row=sealed_rows.name_of(row), checkpoint=str(row.id), seq=row.seq
    )
