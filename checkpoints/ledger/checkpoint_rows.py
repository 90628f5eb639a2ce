"""Checkpoints as rows: what changed against the parent, a snapshot when one is due, hashes, seal. `reader` reads them.

A change is a list of ops on the document {scratch, artifacts, diagnostics, frontier, versions, open}. A row's `anchor`
is the seq of the newest row of its line, up to it, that needs no other: it has a snapshot, or its change sets the whole
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
from orchestrator.engine import canonical, ops
from orchestrator.engine.errors import SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.ops import Op
from orchestrator.engine.pending_parts import pending_parts

log = structlog.get_logger(__name__)

MOST_ROWS = 900
"""Rows that a load folds at most where snapshots go by bytes: some 10 ms."""

FORMAT = 1
"""The format version of rows: what `change`, `snapshot` and the hashes are made of."""


@frozen
class Payload:
    """What a checkpoint says of the state: JSON, the partitions and what resuming needs."""

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
        """What a run needs of its graph to go on from here, as its row keeps it."""
        return pending_parts(self.frontier, self.open).to_text()

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Payload":
        state = {"scratch": document["scratch"], "artifacts": document["artifacts"]}
        return cls(state, document["diagnostics"], document["frontier"], document["versions"], document["open"])


@frozen
class NewCheckpoint:
    """A checkpoint before it is written. `nodes` and `changed` are what lists show of it; `ops` is what became of the
    channels, by name. `snapshot` is the graph's choice: "bytes", or every so many rows. `whole`: its change sets the
    whole document, for channels came or went. `reads`: by task, how many records of reads from memory it is kept with.
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

    `hash`, `anchor` and `since` (bytes of the changes from the anchor on) are those of the newest kept row; `loose` are
    the encoded ops that a head which is not kept adds to it. `sizes` are the bytes of each channel's canonical value,
    `logged` is the number of the log's last line at this row.
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
        """Whether a row that stays in the timeline has exactly this payload."""
        return self.kept and not self.loose

    @property
    def next_seq(self) -> int:
        """The seq of the next row: a recovery point's number is taken over by the row that replaces it."""
        return self.seq + 1 if self.kept else self.seq


@frozen
class RunHeader:
    """Where a row stands, and what is the same for all rows of its run."""

    run: UUID
    graph: str
    version: str
    fingerprint: str
    line: int
    protection: Protection
    backend: str = "database"

    @classmethod
    def of(cls, run: Run | Lease) -> "RunHeader":
        protection = sealed_rows.protection_of(run)
        return cls(run.id, run.graph, run.version, run.fingerprint, run.line, protection, run.payloads)


@frozen
class Delta:
    """What a row changes against its parent: encoded ops, their bytes as one list, its hash; and what comes of it, the
    bytes of each channel's entry and of the whole document. `full_delta`: it sets the document, whatever was before.
    """

    steps: tuple[bytes, ...]
    data: bytes
    hash: str
    sizes: Mapping[str, int]
    size: int
    whole: bool


def full_delta(checkpoint: NewCheckpoint, protection: Protection) -> Delta:
    """The change that sets the whole document: no other row is needed to read it."""
    return _full_delta(checkpoint, sizes := sizes_of(checkpoint.payload), _size(checkpoint.payload, sizes), protection)


def delta_after(head: Head, checkpoint: NewCheckpoint, protection: Protection) -> Delta:
    """The change of the row after `head`: what changed since the kept row before it; or the whole document where that
    is smaller, or most of it was set anew. Where snapshots are counted, a step after a kept row never is the whole.
    """
    if checkpoint.whole:
        return full_delta(checkpoint, protection)
    sizes = _sizes_after(head, checkpoint)
    size = _size(checkpoint.payload, sizes)
    may_be_whole = bool(head.loose) or checkpoint.snapshot == "bytes"
    # Two changes of more than half the document would call for a snapshot, and so weigh more than two documents.
    if may_be_whole and 2 * sum([sizes[name] for name, op in checkpoint.ops.items() if op["op"] == "set"]) > size:
        return _full_delta(checkpoint, sizes, size, protection)
    steps = (*head.loose, canonical.encode(delta_op(head.payload, checkpoint)))
    if may_be_whole and sum(map(len, steps)) > size:
        return _full_delta(checkpoint, sizes, size, protection)
    data = b"[" + b",".join(steps) + b"]"
    return Delta(steps, data, protection.digest(data), sizes, size, whole=False)


def _full_delta(checkpoint: NewCheckpoint, sizes: Mapping[str, int], size: int, protection: Protection) -> Delta:
    step = canonical.encode(ops.put(checkpoint.payload.document()))
    data = b"[" + step + b"]"
    return Delta((step,), data, protection.digest(data), sizes, size, whole=True)


def first_row(
    header: RunHeader, new: UUID, checkpoint: NewCheckpoint, change: Delta, *, end: LogEnd, at: datetime
) -> tuple[Checkpoint, Head]:
    """The first row of a line, always with a snapshot."""
    return standalone_row(header, new, checkpoint, change, seq=0, parent=None, end=end, at=at)


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
    """A row that no other is needed to load: its change is the `full_delta`, and it has a snapshot."""
    before = parent.id if parent else None
    row = _row(header, new, checkpoint, parent=before, seq=seq, end=end, at=at)
    row.anchor = seq
    _seal_with_payloads(header, row, parent.content_hash if parent else "", change, snapshot=checkpoint.payload)
    kept = (row.content_hash, seq, 0)
    return row, Head(new, seq, before, True, checkpoint.source, checkpoint.payload, *kept, change.sizes, end.seq)


def next_row(
    header: RunHeader, new: UUID, head: Head, checkpoint: NewCheckpoint, change: Delta, *, end: LogEnd, at: datetime
) -> tuple[Checkpoint, Head]:
    """The row after `head`, and the head that it makes. It takes over seq and parent of a head that is not kept."""
    parent, seq = (head.id if head.kept else head.parent), head.next_seq
    row = _row(header, new, checkpoint, parent=parent, seq=seq, end=end, at=at)
    since = head.since + len(change.data)
    full = checkpoint.kept and not change.whole and _is_due(checkpoint, seq - head.anchor, since, change.size)
    alone = full or (checkpoint.kept and change.whole)
    row.anchor = seq if alone else head.anchor
    _seal_with_payloads(header, row, head.hash, change, snapshot=checkpoint.payload if full else None)
    # The next change is against the newest kept row.
    kept, loose = (head.hash, head.anchor, head.since), change.steps
    if checkpoint.kept:
        kept, loose = (row.content_hash, row.anchor, 0 if alone else since), ()
    source, payload = checkpoint.source, checkpoint.payload
    return row, Head(new, seq, parent, checkpoint.kept, source, payload, *kept, change.sizes, end.seq, loose)


def head_without_row(head: Head, checkpoint: NewCheckpoint) -> Head:
    """The head after a step that could not be saved: no row stands for it, the next one will hold its change too."""
    step = canonical.encode(delta_op(head.payload, checkpoint))
    return replace(head, payload=checkpoint.payload, sizes=_sizes_after(head, checkpoint), loose=(*head.loose, step))


def delta_op(before: Payload, checkpoint: NewCheckpoint) -> Op:
    """The op on the document that one step is: what the reducers said of the channels, and what else differs."""
    after, keys = checkpoint.payload, {}
    for partition, values in after.state.items():
        content = {name: op for name, op in checkpoint.ops.items() if name in values}
        if content:
            keys[partition] = ops.within(content)
    for part in ("diagnostics", "frontier", "versions", "open"):
        found = ops.between(getattr(before, part), getattr(after, part))
        if found is not None:
            keys[part] = found
    return ops.within(keys)


def _is_due(checkpoint: NewCheckpoint, rows: int, since: int, size: int) -> bool:
    """Whether a row needs a snapshot: by bytes where the changes since the last one outweigh the state, so a load reads
    at most about twice the state and storage stays linear in what changed; and at the latest after so many rows, for
    each costs the reader the same, however little it changed.
    """
    if checkpoint.snapshot == "bytes":
        return since > size or rows >= MOST_ROWS
    return rows >= int(checkpoint.snapshot)


def _seal_with_payloads(
    header: RunHeader, row: Checkpoint, parent_hash: str, change: Delta, *, snapshot: Payload | None
) -> None:
    """Give the row its hashes, seal and bytes."""
    row.change_hash, row.state_size = change.hash, change.size
    row.content_hash = content_hash(row, parent_hash, header.protection)
    whole = b"" if snapshot is None else canonical.encode(snapshot.document())
    row.snapshot_hash = header.protection.digest(whole) if whole else ""
    sealed_rows.seal(row, header.protection)
    _put_payload(row, "change", codec.pack(change.data), header)
    if whole:
        _put_payload(row, "snapshot", codec.pack(whole), header)


def anchor_anew(header: RunHeader, row: Checkpoint, whole: bytes) -> list[str]:
    """Give a row that verified the snapshot of its own state, `whole` in canonical bytes, so that a load begins with
    it. Gives the names of the fields that changed. Raises `SaveFailed`.
    """
    row.snapshot_hash, row.anchor = header.protection.digest(whole), row.seq
    names = reseal_anchor(header, row)
    # A name of its own: who began this before, and was killed, may have left other bytes under the plain one.
    _put_payload(row, "snapshot", codec.pack(whole), replace(header, backend=row.backend), under=uuid7().hex)
    return [*names, "snapshot_hash", "snapshot", "stored_size"]


def reseal_anchor(header: RunHeader, row: Checkpoint) -> list[str]:
    """Let the seals of a row hold with its anchor and snapshot; gives the fields that changed with them. Only a seal of
    the first format covers the anchor.
    """
    if len(bytes(row.seal or b"")) == sealed_rows.MAC_BYTES:
        return ["anchor", *sealed_rows.seal_again(row, header.protection)]
    if row.snapshot_hash:
        sealed_rows.seal_apart(row)
    return ["anchor", "snapshot_seal"]


def content_hash(row: Checkpoint, parent_hash: str, protection: Protection) -> str:
    """The hash of a row's header and its change, chained to the parent's."""
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


def _put_payload(row: Checkpoint, column: str, packed: bytes, header: RunHeader, *, under: str = "") -> None:
    locked = sealed_rows.encrypted(row, column, packed, header.protection)
    name = payloads.name_of(header.run, row.id, column)
    try:
        kept = payloads.put_payload(header.backend, name, locked, under=under)
    except Exception as error:
        # A backend of one's own raises whatever its client raises; to the run each of it is the same.
        what = f"payload backend {header.backend!r} did not keep {name}: {type(error).__name__}: {error}"
        raise SaveFailed(what, backend=header.backend, payload=name) from error
    setattr(row, column, kept)
    row.stored_size += len(locked)


def delete_replaced_payload(header: RunHeader, replaced: UUID) -> None:
    """Delete the bytes of a recovery point that has been replaced. Where that fails they are left to the sweep."""
    _delete_payload(header.backend, payloads.name_of(header.run, replaced, "change"))


def delete_payloads(row: Checkpoint) -> None:
    """Delete the bytes of a row that is gone. Where that fails they are left to the sweep."""
    for column in ("change", "snapshot"):
        if kept := bytes(getattr(row, column)):
            _delete_payload(row.backend, payloads.name_of(row.run_id, row.id, column), kept)


def _delete_payload(backend: str, name: str, kept: bytes = b"") -> None:
    try:
        payloads.delete_payload(backend, name, kept)
    except Exception as error:
        log.warning("payload_left_to_the_sweep", name=name, backend=backend, error=str(error))


def _row(
    header: RunHeader, new: UUID, checkpoint: NewCheckpoint, *, parent: UUID | None, seq: int, end: LogEnd, at: datetime
) -> Checkpoint:
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
    """Bytes of each channel's entry in the canonical document: name, colon, value."""
    return {name: _entry(name, value) for values in payload.state.values() for name, value in values.items()}


def _entry(name: str, value: Any) -> int:
    return len(canonical.encode({name: value})) - len("{}")


def _sizes_after(head: Head, checkpoint: NewCheckpoint) -> dict[str, int]:
    """The sizes of the channels' entries after this step, without encoding what only grew."""
    sizes = dict(head.sizes)
    for name, op in checkpoint.ops.items():
        partition = "artifacts" if name in checkpoint.payload.state["artifacts"] else "scratch"
        if op["op"] == "append" and op["items"] and head.payload.state[partition][name]:
            sizes[name] += len(canonical.encode(op["items"])) - 1
        else:
            sizes[name] = _entry(name, checkpoint.payload.state[partition][name])
    return sizes


def _size(payload: Payload, sizes: Mapping[str, int]) -> int:
    """The bytes of the canonical document."""
    rest = {**payload.document(), "scratch": {}, "artifacts": {}}
    commas = sum([len(values) - 1 for values in payload.state.values() if values])
    return len(canonical.encode(rest)) + commas + sum(sizes.values())
