"""Rows of checkpoints read back: the payload at a checkpoint, folded from one range of rows, and the head of a run,
whose rows must prove to be what was sealed. The ledger and the timeline call it.
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
from orchestrator.engine import canonical, ops
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.ops import Op

Document = dict[str, Any]


def range_of(checkpoint: UUID) -> list[Checkpoint]:
    """The rows from which the payload of a checkpoint is folded, oldest first: one query."""
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    return db_rows.fetch_rows(Checkpoint, names, _range_sql(), [checkpoint])


def range_with_run(checkpoint: UUID, more: tuple[str, ...] = ()) -> tuple[list[Checkpoint], Run | None]:
    """`range_of` with the run's row: what its seal covers, and `more` of its columns; None where there are no rows. One
    query.
    """
    names = (*run_row.SEALED, *more)
    return db_rows.fetch_range(Checkpoint, _CHAINED, Run, names, _range_sql(names), [checkpoint])


def ranges_of(checkpoints: Sequence[UUID]) -> dict[UUID, list[Checkpoint]]:
    """`range_of` for several checkpoints, by the checkpoint: one query."""
    names = (*(f.attname for f in Checkpoint._meta.concrete_fields), "wanted")
    found: dict[UUID, list[Checkpoint]] = {}
    for row in db_rows.fetch_rows(Checkpoint, names, _ranges_sql(len(checkpoints)), checkpoints):
        wanted = row.__dict__.pop("wanted")
        found.setdefault(wanted if isinstance(wanted, UUID) else UUID(wanted), []).append(row)
    return found


@cache
def _ranges_sql(count: int) -> str:
    table, names = Checkpoint._meta.db_table, tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    first = "CASE WHEN h.anchor < h.seq THEN h.anchor ELSE h.seq END"
    rows = f"JOIN {table} c ON c.run_id = h.run_id AND c.line = h.line AND c.seq BETWEEN {first} AND h.seq"
    places = ", ".join(["%s"] * count)
    columns = db_rows.named_columns(Checkpoint, names, "c")
    return f"SELECT {columns}, h.id FROM {table} h {rows} WHERE h.id IN ({places}) ORDER BY h.id, c.seq"  # noqa: S608


_CHAINED = (
    "id", "run_id", "line", "seq", "superstep", "source", "fingerprint", "format", "committed", "kept", "event_seq",
    "event_hash", "change_hash", "content_hash", "backend", "change",
)  # fmt: skip
"""What chaining and folding need of a row between two others."""


@cache
def _range_sql(run: tuple[str, ...] = ()) -> str:
    """One text, for to compile the query costs many times what the rows of a small state do. The run's columns come
    with the last row alone.
    """
    table, runs = Checkpoint._meta.db_table, Run._meta.db_table
    names = tuple(f.attname for f in Checkpoint._meta.concrete_fields)
    # A short text: the ORM looks through each of its letters for places of parameters.
    columns = f"c.*, {db_rows.named_columns(Run, run, 'r')}" if run else db_rows.named_columns(Checkpoint, names, "c")
    joined = f" LEFT JOIN {runs} r ON r.id = h.run_id AND c.id = h.id" if run else ""
    # No seal holds an anchor: one behind its row must not make the row look gone.
    first = "CASE WHEN h.anchor < h.seq THEN h.anchor ELSE h.seq END"
    rows = f"JOIN {table} c ON c.run_id = h.run_id AND c.line = h.line AND c.seq BETWEEN {first} AND h.seq"
    return f"SELECT {columns} FROM {table} h {rows}{joined} WHERE h.id = %s ORDER BY c.seq"  # noqa: S608


def bytes_of(
    row: Checkpoint, column: str, protection: Protection | None = None, *, stored: bytes | None = None
) -> bytes:
    """The canonical bytes of a row's change or snapshot, wherever a backend keeps them; empty where there are none.
    `stored` are those of `stored_bytes`, where they were read already.

    Raises `TamperedRow` and `WrongKey`; with the run's `protection` also where they are not encrypted as the run is.
    """
    stored = stored_bytes(row, column) if stored is None else stored
    if not stored:
        return b""
    if protection is not None:
        sealed_rows.require_protection(row, column, stored, protection)
    return sealed_columns.read_bytes(row, column, stored)


def stored_bytes(row: Checkpoint, column: str) -> bytes:
    """The bytes of a row's change or snapshot as its backend keeps them; empty where there are none. Raises what the
    backend raises.
    """
    kept = bytes(getattr(row, column))
    if not kept or row.backend == payloads.DATABASE:
        return kept
    return payloads.get_payload(row.backend, payloads.name_of(row.run_id, row.id, column), kept)


def parts_of(rows: Sequence[Checkpoint], protection: Protection | None = None) -> list[bytes]:
    """What a range of rows is folded from: the snapshot of the first, or its change where that is the whole, and the
    changes of those after it. Raises `TamperedRow` where the snapshot is gone.
    """
    if rows[0].snapshot_hash:
        if not rows[0].snapshot:
            raise _tampered(rows[0], f"{rows[0]} has lost its snapshot")
        return [bytes_of(rows[0], "snapshot", protection), *(bytes_of(row, "change", protection) for row in rows[1:])]
    parts = [bytes_of(row, "change", protection) for row in rows]
    if not parts[0].startswith(WHOLE):
        raise _tampered(rows[0], f"{rows[0]} is not the whole of a state to load from")
    return parts


WHOLE = b'[{"op":"set",'
"""How the canonical bytes of a change begin that sets the whole document."""


def folded(parts: Sequence[bytes]) -> Document:
    """The document that these parts come to."""
    whole = parts[0].startswith(WHOLE)
    document: Document = {} if whole else canonical.loads(parts[0])
    for change in parts if whole else parts[1:]:
        document = reduce(ops.apply_to_own, canonical.loads(change), document)
    return document


def changed_channels(document: Document, change: Iterable[Op]) -> Document:
    """The document after a change."""
    return reduce(ops.apply, change, document)


def document_at(checkpoint: UUID) -> Document | None:
    """The document at a checkpoint; None where there is no such row. One query."""
    rows = range_of(checkpoint)
    return folded(parts_of(rows)) if rows else None


def proven(rows: Sequence[Checkpoint], protection: Protection) -> Document:
    """The document at the last of these rows, proven to be what was sealed. Raises `TamperedRow`, `WrongKey`."""
    parts = parts_of(rows, protection)
    _verify(rows, parts, protection)
    return folded(parts)


def head_of(rows: Sequence[Checkpoint], protection: Protection) -> Head:
    """The head that the last of these rows is, proven to be what was sealed. Raises `TamperedRow`, `WrongKey`."""
    parts = parts_of(rows, protection)
    _verify(rows, parts, protection)
    newest, kept = rows[-1], [row for row in rows[-2:] if row.kept]
    if not kept:
        raise _tampered(newest, f"the checkpoint before {newest} is missing")
    payload = Payload.of(folded(parts))
    since = sum(len(part) for row, part in zip(rows[1:], parts[1:], strict=True) if row.kept)
    loose = () if newest.kept else tuple(canonical.encode(op) for op in canonical.loads(parts[-1]))
    return Head(
        id=newest.id,
        seq=newest.seq,
        parent=newest.parent,
        kept=newest.kept,
        source=newest.source,
        payload=payload,
        hash=kept[-1].content_hash,
        # Where this very load began, which was proven; no seal holds what the row says of it.
        anchor=rows[0].seq,
        since=since,
        sizes=sizes_of(payload),
        logged=newest.event_seq,
        loose=loose,
    )


def _verify(rows: Sequence[Checkpoint], parts: Sequence[bytes], protection: Protection) -> None:
    """Check the seals of the first and the last row, the chain of hashes between them, and what they keep."""
    for row in {rows[0].id: rows[0], rows[-1].id: rows[-1]}.values():
        sealed_rows.verify_row(row, protection)
    erased = ErasedRows.of_rows(rows)
    for n, (row, part) in enumerate(zip(rows, parts, strict=True)):
        require_hashed(row, part, protection, begins=not n, erased=erased)
        if n and row.seq != rows[n - 1].seq + 1:
            raise _tampered(row, f"checkpoints before {row} are missing")
        if n and row.content_hash != content_hash(row, rows[n - 1].content_hash, protection):
            raise _tampered(row, f"{row} is not chained to the checkpoint before it")


def require_hashed(
    row: Checkpoint, data: bytes, protection: Protection, *, begins: bool = False, erased: ErasedRows | None = None
) -> None:
    """Raise `TamperedRow` where a row's payload is neither what was hashed nor what stands in the place of what was
    erased. `begins`: it is what a load begins with, the snapshot where there is one.
    """
    column, hash_ = ("snapshot", row.snapshot_hash) if begins and row.snapshot_hash else ("change", row.change_hash)
    if protection.digest(data) == hash_:
        return
    if not (erased or ErasedRows.of_rows([row])).covers(row, column, data, protection):
        raise altered_payload(row)


def altered_payload(row: Checkpoint) -> TamperedRow:
    """The refusal of a row whose payload does not have the hash that the row seals."""
    return _tampered(row, f"the payload of {row} is not what was sealed")


def _tampered(row: Checkpoint, what: str) -> TamperedRow:
    return TamperedRow(what, row=sealed_rows.name_of(row), checkpoint=str(row.id), seq=row.seq)
