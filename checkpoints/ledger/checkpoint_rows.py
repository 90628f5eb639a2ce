"""Checkpoints as rows: the change against the parent, a snapshot when one is due,
hashes, seal. `reader` reads them.

A change is a list of ops on the document {scratch, artifacts, diagnostics, frontier,
versions, open}. A row's `anchor` is the seq of the newest row of its line, up to the
row itself, that needs no other: it has a snapshot, or its change sets the whole
document. So one range of rows is enough to load any row.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from checkpoints import payloads
from checkpoints.core import codec
from checkpoints.core.ids import uuid7
from checkpoints.db.rows import new_row
from checkpoints.event_log import LogEnd
from checkpoints.models import Checkpoint, Run
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical, ops
from orchestrator.engine.values.ops import Op
from orchestrator.engine.versions.pending_parts import pending_parts

log = structlog.get_logger(__name__)

MOST_ROWS = 900
"""The most rows that a load folds if snapshots go by bytes: some 10 ms."""

SMALL = 400
"""The bytes of a document that is written whole, without a look at what changed."""

FORMAT = 1
"""The format version of rows: what `change`, `snapshot` and the hashes are made of."""


@frozen
class Payload:
    """The content of a checkpoint as JSON: the partitions of the state and what
    resuming needs.
    """

    state: dict[str, dict[str, Any]]
    diagnostics: dict[str, Any]
    frontier: dict[str, Any]
    versions: dict[str, int] = field(default_factory=dict)
    open: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "scratch": self.state["scratch"],
            "artifacts": self.state["artifacts"],
            "diagnostics": self.diagnostics,
            "frontier": self.frontier,
            "versions": self.versions,
            "open": self.open,
        }

    @property
    def pending(self) -> str:
        """The parts of its graph that a run needs to go on from here, as its row keeps
        them.
        """
        return pending_parts(self.frontier, self.open).to_text()

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Payload":
        return cls(
            state={
                "scratch": document["scratch"],
                "artifacts": document["artifacts"],
            },
            diagnostics=document["diagnostics"],
            frontier=document["frontier"],
            versions=document["versions"],
            open=document["open"],
        )


@frozen
class NewCheckpoint:
    """A checkpoint before it is written.

    `nodes` and the names of `ops` are shown in lists; `ops` are the ops on the
    channels, by name. `snapshot` is the graph's choice: "bytes", or every n-th row.
    `whole`: its change sets the whole document, because channels were added or removed.
    `reads`: the number of records of reads from memory that are kept with it, by task.
    """

    source: str
    payload: Payload
    superstep: int
    ops: Mapping[str, Op] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    kept: bool = True
    committed: bool = True
    took_ms: int = 0
    snapshot: str | int = "bytes"
    whole: bool = False
    reads: Mapping[str, int] = field(default_factory=dict)


@frozen
class Head:
    """The newest checkpoint row as its holder needs it.

    `hash`, `anchor` and `since` (bytes of the changes from the anchor on) are those of
    the newest kept row; `loose` are the encoded ops that a head which is not kept adds
    to it. `sizes` are the bytes of each channel's canonical value, `logged` is the
    number of the log's last event at this row.
    """

    id: UUID
    seq: int
    parent: UUID | None
    kept: bool
    source: str
    payload: Payload
    hash: str
    anchor: int
    since: int
    sizes: Mapping[str, int]
    logged: int
    loose: tuple[bytes, ...] = ()

    @property
    def is_stored(self) -> bool:
        """Return whether a row that stays in the timeline has exactly this payload."""
        return self.kept and not self.loose

    @property
    def next_seq(self) -> int:
        """The seq of the next row, which takes over the number of a recovery point that
        it replaces.
        """
        return self.seq + 1 if self.kept else self.seq


@frozen
class RunHeader:
    """The position of a row, and the facts that all rows of its run share."""

    run: UUID
    graph: str
    version: str
    fingerprint: str
    line: int
    protection: Protection
    backend: str = "database"

    @classmethod
    def of(cls, run: Run | Lease) -> "RunHeader":
        if isinstance(run, Lease):
            protection = run.protection
        else:
            protection = sealed_rows.protection_of(run)
        return cls(
            run=run.id,
            graph=run.graph,
            version=run.version,
            fingerprint=run.fingerprint,
            line=run.line,
            protection=protection,
            backend=run.payloads,
        )


@frozen
class Delta:
    """The change of a row against its parent: encoded ops, their bytes as one list, and
    its hash; with the bytes that each channel's entry and the whole document have
    afterwards. `whole`: it sets the document, whatever was before.
    """

    steps: tuple[bytes, ...]
    data: bytes
    hash: str
    sizes: Mapping[str, int]
    size: int
    whole: bool


def full_delta(checkpoint: NewCheckpoint, protection: Protection) -> Delta:
    """Return the change that sets the whole document: no other row is needed to read
    it.
    """
    sizes = sizes_of(checkpoint.payload)
    size = _size(checkpoint.payload, sizes)
    return _full_delta(checkpoint, sizes, size, protection)


def delta_after(head: Head, checkpoint: NewCheckpoint, protection: Protection) -> Delta:
    """Return the change of the row after `head`: what changed since the kept row before
    it; or the whole document if that is smaller, or if most of it was set again. If
    snapshots are counted, the row after a kept one is never the whole.
    """
    if checkpoint.whole:
        return full_delta(checkpoint, protection)
    sizes = _sizes_after(head, checkpoint)
    size = _size(checkpoint.payload, sizes)
    may_be_whole = bool(head.loose) or checkpoint.snapshot == "bytes"
    if may_be_whole and _is_better_whole(checkpoint, sizes, size):
        return _full_delta(checkpoint, sizes, size, protection)

    # The loose ops of recovery points have no row that stays, so they belong to this.
    steps = (*head.loose, canonical.encode(delta_op(head.payload, checkpoint)))
    if may_be_whole and sum(map(len, steps)) > size:
        return _full_delta(checkpoint, sizes, size, protection)
    data = b"[" + b",".join(steps) + b"]"
    return Delta(steps, data, protection.digest(data), sizes, size, whole=False)


def _is_better_whole(
    checkpoint: NewCheckpoint, sizes: Mapping[str, int], size: int
) -> bool:
    """Return whether the whole document is written without a look at what changed."""
    # Its change would hardly be shorter, and looking for it takes longer than writing.
    if size <= SMALL:
        return True
    # Two changes of more than half the document call for a snapshot, and with it weigh
    # more than the document written twice.
    set_anew = [sizes[name] for name, op in checkpoint.ops.items() if op["op"] == "set"]
    return 2 * sum(set_anew) > size


def _full_delta(
    checkpoint: NewCheckpoint,
    sizes: Mapping[str, int],
    size: int,
    protection: Protection,
) -> Delta:
    step = canonical.encode(ops.put(checkpoint.payload.document()))
    data = b"[" + step + b"]"
    return Delta((step,), data, protection.digest(data), sizes, size, whole=True)


def first_row(
    header: RunHeader,
    new: UUID,
    checkpoint: NewCheckpoint,
    change: Delta,
    *,
    end: LogEnd,
    at: datetime,
) -> tuple[Checkpoint, Head]:
    """Return the first row of a line, always with a snapshot, and the head that it
    makes.
    """
    return standalone_row(
        header, new, checkpoint, change, seq=0, parent=None, end=end, at=at
    )


def standalone_row(
    header: RunHeader,
    new: UUID,
    checkpoint: NewCheckpoint,
    change: Delta,
    *,
    seq: int,
    parent: Checkpoint | None,
    end: LogEnd,
    at: datetime,
) -> tuple[Checkpoint, Head]:
    """Return a row that can be loaded without any other, and the head that it makes:
    its change is the `full_delta`, and it has a snapshot.
    """
    parent_id = parent.id if parent else None
    parent_hash = parent.content_hash if parent else ""
    row = _row(header, new, checkpoint, parent=parent_id, seq=seq, end=end, at=at)
    row.anchor = seq
    _seal_with_payloads(header, row, parent_hash, change, snapshot=checkpoint.payload)
    head = Head(
        id=new,
        seq=seq,
        parent=parent_id,
        kept=True,
        source=checkpoint.source,
        payload=checkpoint.payload,
        hash=row.content_hash,
        anchor=seq,
        since=0,
        sizes=change.sizes,
        logged=end.seq,
    )
    return row, head


def next_row(
    header: RunHeader,
    new: UUID,
    head: Head,
    checkpoint: NewCheckpoint,
    change: Delta,
    *,
    end: LogEnd,
    at: datetime,
) -> tuple[Checkpoint, Head]:
    """Return the row after `head`, and the head that it makes. It takes over seq and
    parent of a head that is not kept.
    """
    parent = head.id if head.kept else head.parent
    seq = head.next_seq
    row = _row(header, new, checkpoint, parent=parent, seq=seq, end=end, at=at)

    # A recovery point gets no snapshot, and no load begins with it: it is replaced.
    since = head.since + len(change.data)
    has_snapshot = False
    if checkpoint.kept and not change.whole:
        has_snapshot = _is_due(checkpoint, seq - head.anchor, since, change.size)
    is_anchor = has_snapshot or (checkpoint.kept and change.whole)
    row.anchor = seq if is_anchor else head.anchor
    snapshot = checkpoint.payload if has_snapshot else None
    _seal_with_payloads(header, row, head.hash, change, snapshot=snapshot)

    # The next row is made from the head alone, so that no step reads one.
    new_head = Head(
        id=new,
        seq=seq,
        parent=parent,
        kept=checkpoint.kept,
        source=checkpoint.source,
        payload=checkpoint.payload,
        hash=row.content_hash,
        anchor=row.anchor,
        since=0 if is_anchor else since,
        sizes=change.sizes,
        logged=end.seq,
    )
    if not checkpoint.kept:
        # The next change is against the newest kept row.
        new_head = replace(
            new_head,
            hash=head.hash,
            anchor=head.anchor,
            since=head.since,
            loose=change.steps,
        )
    return row, new_head


def head_without_row(head: Head, checkpoint: NewCheckpoint) -> Head:
    """Return the head after a step that could not be saved: it has no row, and the next
    row will hold its change too.
    """
    # The hash stays too: the next row is chained to the newest kept row.
    step = canonical.encode(delta_op(head.payload, checkpoint))
    return replace(
        head,
        payload=checkpoint.payload,
        sizes=_sizes_after(head, checkpoint),
        loose=(*head.loose, step),
    )


def delta_op(before: Payload, checkpoint: NewCheckpoint) -> Op:
    """Return one step as one op on the document: the reducers' ops on the channels, and
    the differences of the other parts.
    """
    after = checkpoint.payload
    ops_by_part = {}
    for partition, values in after.state.items():
        channel_ops = {
            name: op for name, op in checkpoint.ops.items() if name in values
        }
        if channel_ops:
            ops_by_part[partition] = ops.within(channel_ops)
    for part in ("diagnostics", "frontier", "versions", "open"):
        difference = ops.between(getattr(before, part), getattr(after, part))
        if difference is not None:
            ops_by_part[part] = difference
    return ops.within(ops_by_part)


def _is_due(checkpoint: NewCheckpoint, rows: int, since: int, size: int) -> bool:
    """Return whether a row needs a snapshot.

    By bytes it does once the changes since the last one outweigh the state, so a load
    reads at most about twice the state and storage stays linear in what changed; and
    after `MOST_ROWS` rows at the latest, because each row costs a reader the same,
    however little it changed.
    """
    if checkpoint.snapshot == "bytes":
        return since > size or rows >= MOST_ROWS
    return rows >= int(checkpoint.snapshot)


def _seal_with_payloads(
    header: RunHeader,
    row: Checkpoint,
    parent_hash: str,
    change: Delta,
    *,
    snapshot: Payload | None,
) -> None:
    """Give the row its hashes, seal and bytes."""
    row.change_hash = change.hash
    row.state_size = change.size
    row.content_hash = content_hash(row, parent_hash, header.protection)
    snapshot_bytes = b""
    if snapshot is not None:
        snapshot_bytes = canonical.encode(snapshot.document())
        row.snapshot_hash = header.protection.digest(snapshot_bytes)
    sealed_rows.seal(row, header.protection)
    # The hashes are over plain bytes, so the stored ones can be packed and encrypted.
    _put_payload(row, "change", codec.pack(change.data), header)
    if snapshot_bytes:
        _put_payload(row, "snapshot", codec.pack(snapshot_bytes), header)


def anchor_anew(header: RunHeader, row: Checkpoint, whole: bytes) -> list[str]:
    """Give a row that verified its own snapshot, `whole` in canonical
    bytes, so that a load begins with it. Returns the names of the fields that changed.
    Raises `SaveFailed`.
    """
    # Only the separate seal is renewed: the row's own is named by records of erasures.
    row.snapshot_hash = header.protection.digest(whole)
    row.anchor = row.seq
    sealed_rows.seal_later(row)
    # A name that nothing else has: an earlier attempt that was killed may have left
    # other bytes under the plain one. The backend is the row's, where readers look.
    _put_payload(
        row,
        "snapshot",
        codec.pack(whole),
        replace(header, backend=row.backend),
        under=uuid7().hex,
    )
    return ["anchor", "snapshot_seal", "snapshot_hash", "snapshot", "stored_size"]


def content_hash(row: Checkpoint, parent_hash: str, protection: Protection) -> str:
    """Return the hash of a row's header and its change, chained to the parent's."""
    # Without `kept`, the anchor and the snapshot, which may change later: rows that are
    # chained to this one hold its hash.
    return protection.framed_hash(
        parent_hash,
        row.run_id,
        row.line,
        row.seq,
        row.superstep,
        str(row.source),
        row.fingerprint,
        row.format,
        int(row.committed),
        row.event_seq,
        row.event_hash,
        row.change_hash,
    )


def _put_payload(
    row: Checkpoint,
    column: str,
    packed: bytes,
    header: RunHeader,
    *,
    under: str = "",
) -> None:
    """Encrypt bytes if the run is encrypted, give them to the payload backend, and put
    what it returns for the row into the column. Raises `SaveFailed`.
    """
    encrypted = packed
    if header.protection.encrypted:
        encrypted = sealed_rows.encrypted(row, column, packed, header.protection)
    # The usual case needs neither name nor backend: the row holds the bytes themselves.
    if header.backend == payloads.DATABASE:
        setattr(row, column, encrypted)
        row.stored_size += len(encrypted)
        return
    name = payloads.name_of(header.run, row.id, column)
    try:
        stored = payloads.put_payload(header.backend, name, encrypted, under=under)
    except Exception as error:
        # A custom backend raises whatever its client raises; to the run it is all the
        # same.
        message = (
            f"payload backend {header.backend!r} did not keep {name}: "
            f"{type(error).__name__}: {error}"
        )
        raise SaveFailed(message, backend=header.backend, payload=name) from error
    setattr(row, column, stored)
    row.stored_size += len(encrypted)


def delete_replaced_payload(header: RunHeader, replaced: UUID) -> None:
    """Delete the bytes of a recovery point that has been replaced. If that fails, they
    are left to the sweep.
    """
    # A recovery point never has a snapshot.
    _delete_payload(header.backend, payloads.name_of(header.run, replaced, "change"))


def delete_payloads(row: Checkpoint) -> None:
    """Delete the bytes of a row that is gone. If that fails, they are left to the
    sweep.
    """
    for column in ("change", "snapshot"):
        stored = bytes(getattr(row, column))
        if stored:
            name = payloads.name_of(row.run_id, row.id, column)
            _delete_payload(row.backend, name, stored)


def _delete_payload(backend: str, name: str, stored: bytes = b"") -> None:
    # The row is committed or gone by now, so a backend's failure must not stop the run.
    try:
        payloads.delete_payload(backend, name, stored)
    except Exception as error:
        log.warning(
            "payload_left_to_the_sweep", name=name, backend=backend, error=str(error)
        )


def _row(
    header: RunHeader,
    new: UUID,
    checkpoint: NewCheckpoint,
    *,
    parent: UUID | None,
    seq: int,
    end: LogEnd,
    at: datetime,
) -> Checkpoint:
    """Return the row without anchor, hashes, seal and bytes."""
    return new_row(
        Checkpoint,
        id=new,
        run_id=header.run,
        graph=header.graph,
        version=header.version,
        fingerprint=header.fingerprint,
        line=header.line,
        seq=seq,
        superstep=checkpoint.superstep,
        source=checkpoint.source,
        parent=parent,
        created_at=at,
        kept=checkpoint.kept,
        committed=checkpoint.committed,
        format=FORMAT,
        backend=header.backend,
        nodes=checkpoint.nodes,
        changed=sorted(checkpoint.ops),
        event_seq=end.seq,
        event_hash=end.hash,
        took_ms=checkpoint.took_ms,
    )


def sizes_of(payload: Payload) -> dict[str, int]:
    """Return the bytes of each channel's entry in the canonical document: name, colon,
    value.
    """
    sizes = {}
    for values in payload.state.values():
        for name, value in values.items():
            sizes[name] = _entry_size(name, value)
    return sizes


def _entry_size(name: str, value: Any) -> int:
    return len(canonical.encode({name: value})) - len("{}")


def _sizes_after(head: Head, checkpoint: NewCheckpoint) -> dict[str, int]:
    """Return the sizes of the channels' entries after this step, without re-encoding
    what only grew.
    """
    state = checkpoint.payload.state
    sizes = dict(head.sizes)
    for name, op in checkpoint.ops.items():
        partition = "artifacts" if name in state["artifacts"] else "scratch"
        # Items are appended to a list that is not empty after a comma, without
        # brackets.
        appends = op["op"] == "append" and op["items"]
        if appends and head.payload.state[partition][name]:
            sizes[name] += len(canonical.encode(op["items"])) - 1
        else:
            sizes[name] = _entry_size(name, state[partition][name])
    return sizes


def _size(payload: Payload, sizes: Mapping[str, int]) -> int:
    """Return the bytes of the canonical document, whose channels have these `sizes`."""
    without_channels = {**payload.document(), "scratch": {}, "artifacts": {}}
    # The brackets of both partitions are counted with the rest, their entries are not.
    commas = 0
    for values in payload.state.values():
        if values:
            commas += len(values) - 1
    return len(canonical.encode(without_channels)) + commas + sum(sizes.values())
