"""Checkpoints as rows: what changed against the parent, a full snapshot when one is due, the hashes, the seal. The
ledger writes with it; `folding` reads rows back.

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
from checkpoints.db import statements as sql
from checkpoints.event_log import LogEnd
from checkpoints.models import Checkpoint, Run
from checkpoints.queue.leases import Hold
from checkpoints.sealing import sealed_rows as sealing
from checkpoints.sealing.sealed_rows import Cover
from orchestrator.engine import canonical, ops
from orchestrator.engine.errors import SaveFailed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.ops import Op

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

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Payload":
        state = {"scratch": document["scratch"], "artifacts": document["artifacts"]}
        return cls(state, document["diagnostics"], document["frontier"], document["versions"], document["open"])


@frozen
class Point:
    """A checkpoint before it is written. `nodes` and `changed` are what lists show of it; `ops` is what became of the
    channels, by name. `snapshot` is the graph's choice: "bytes", or every so many rows.
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
    def next_seq(self) -> int:
        """The seq of the next row: a recovery point's number is taken over by the row that replaces it."""
        return self.seq + 1 if self.kept else self.seq


@frozen
class Place:
    """Where a row stands, and what is the same for all rows of its run."""

    run: UUID
    graph: str
    version: str
    fingerprint: str
    line: int
    cover: Cover
    backend: str = "database"

    @classmethod
    def of(cls, run: Run | Hold) -> "Place":
        return cls(run.id, run.graph, run.version, run.fingerprint, run.line, sealing.cover_of(run), run.payloads)


@frozen
class Change:
    """What a row changes against its parent: encoded ops, their bytes as one list, its hash; and what comes of it, the
    bytes of each channel's entry and of the whole document. `whole`: it sets the document, whatever was before.
    """

    steps: tuple[bytes, ...]
    data: bytes
    hash: str
    sizes: Mapping[str, int]
    size: int
    whole: bool


def whole(point: Point, cover: Cover) -> Change:
    """The change that sets the whole document: no other row is needed to read it."""
    return _whole(point, sizes := sizes_of(point.payload), _size(point.payload, sizes), cover)


def change_after(head: Head, point: Point, cover: Cover) -> Change:
    """The change of the row after `head`: what changed since the kept row before it; or the whole document where that
    is smaller, or most of it was set anew. Where snapshots are counted, a step after a kept row never is the whole.
    """
    sizes = _sizes_after(head, point)
    size = _size(point.payload, sizes)
    may_be_whole = bool(head.loose) or point.snapshot == "bytes"
    # Two changes of more than half the document would call for a snapshot, and so weigh more than two documents.
    if may_be_whole and 2 * sum([sizes[name] for name, op in point.ops.items() if op["op"] == "set"]) > size:
        return _whole(point, sizes, size, cover)
    steps = (*head.loose, canonical.encode(step_change(head.payload, point)))
    if may_be_whole and sum(map(len, steps)) > size:
        return _whole(point, sizes, size, cover)
    data = b"[" + b",".join(steps) + b"]"
    return Change(steps, data, cover.digest(data), sizes, size, whole=False)


def _whole(point: Point, sizes: Mapping[str, int], size: int, cover: Cover) -> Change:
    step = canonical.encode(ops.put(point.payload.document()))
    data = b"[" + step + b"]"
    return Change((step,), data, cover.digest(data), sizes, size, whole=True)


def first(
    place: Place, new: UUID, point: Point, change: Change, *, end: LogEnd, at: datetime
) -> tuple[Checkpoint, Head]:
    """The first row of a line, always with a snapshot."""
    return alone(place, new, point, change, seq=0, parent=None, end=end, at=at)


def alone(
    place: Place,
    new: UUID,
    point: Point,
    change: Change,
    *,
    seq: int,
    parent: Checkpoint | None,
    end: LogEnd,
    at: datetime,
) -> tuple[Checkpoint, Head]:
    """A row that no other is needed to load: its change is the `whole`, and it has a snapshot."""
    before = parent.id if parent else None
    row = _row(place, new, point, parent=before, seq=seq, end=end, at=at)
    row.anchor = seq
    _finish(place, row, parent.content_hash if parent else "", change, snapshot=point.payload)
    kept = (row.content_hash, seq, 0)
    return row, Head(new, seq, before, True, point.source, point.payload, *kept, change.sizes, end.seq)


def following(
    place: Place, new: UUID, head: Head, point: Point, change: Change, *, end: LogEnd, at: datetime
) -> tuple[Checkpoint, Head]:
    """The row after `head`, and the head that it makes. A head that is not kept is replaced: the row takes over its seq
    and its parent.
    """
    parent, seq = (head.id if head.kept else head.parent), head.next_seq
    row = _row(place, new, point, parent=parent, seq=seq, end=end, at=at)
    since = head.since + len(change.data)
    full = point.kept and not change.whole and _is_due(point, seq - head.anchor, since=since, size=change.size)
    alone = full or (point.kept and change.whole)
    row.anchor = seq if alone else head.anchor
    _finish(place, row, head.hash, change, snapshot=point.payload if full else None)
    # The next change is against the newest kept row.
    kept = (row.content_hash, row.anchor, 0 if alone else since) if point.kept else (head.hash, head.anchor, head.since)
    loose = () if point.kept else change.steps
    return row, Head(new, seq, parent, point.kept, point.source, point.payload, *kept, change.sizes, end.seq, loose)


def unsaved(head: Head, point: Point) -> Head:
    """The head after a step that could not be saved: no row stands for it, the next one will hold its change too."""
    step = canonical.encode(step_change(head.payload, point))
    return replace(head, payload=point.payload, sizes=_sizes_after(head, point), loose=(*head.loose, step))


def step_change(before: Payload, point: Point) -> Op:
    """The op on the document that one step is: what the reducers said of the channels, and what else differs."""
    after, keys = point.payload, {}
    for partition, values in after.state.items():
        said = {name: op for name, op in point.ops.items() if name in values}
        if said:
            keys[partition] = ops.within(said)
    for part in ("diagnostics", "frontier", "versions", "open"):
        found = ops.between(getattr(before, part), getattr(after, part))
        if found is not None:
            keys[part] = found
    return ops.within(keys)


def _is_due(point: Point, rows: int, *, since: int, size: int) -> bool:
    """Whether a row needs a snapshot: by bytes where the changes since the last one outweigh the state, so a load reads
    at most about twice the state and storage stays linear in what changed; and at the latest after so many rows, for
    each costs the reader the same, however little it changed.
    """
    if point.snapshot == "bytes":
        return since > size or rows >= MOST_ROWS
    return rows >= int(point.snapshot)


def _finish(place: Place, row: Checkpoint, parent_hash: str, change: Change, *, snapshot: Payload | None) -> None:
    """Give the row its hashes, seal and bytes."""
    row.change_hash, row.state_size = change.hash, change.size
    row.content_hash = content_hash(row, parent_hash, place.cover)
    whole = b"" if snapshot is None else canonical.encode(snapshot.document())
    row.snapshot_hash = place.cover.digest(whole) if whole else ""
    sealing.seal(row, place.cover)
    _keep(row, "change", codec.pack(change.data), place)
    if whole:
        _keep(row, "snapshot", codec.pack(whole), place)


def content_hash(row: Checkpoint, parent_hash: str, cover: Cover) -> str:
    """The hash of a row's header and its change, chained to the parent's."""
    return cover.framed_hash(
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


def _keep(row: Checkpoint, column: str, packed: bytes, place: Place) -> None:
    locked = sealing.locked(row, column, packed, place.cover)
    name = payloads.name_of(place.run, row.id, column)
    try:
        kept = payloads.keep(place.backend, name, locked)
    except Exception as error:
        # A backend of one's own raises whatever its client raises; to the run each of it is the same.
        what = f"payload backend {place.backend!r} did not keep {name}: {type(error).__name__}: {error}"
        raise SaveFailed(what, backend=place.backend, payload=name) from error
    setattr(row, column, kept)
    row.stored_size += len(locked)


def forget(place: Place, replaced: UUID) -> None:
    """Delete the bytes of a recovery point that has been replaced. Where that fails they are left to the sweep."""
    _forget(place.backend, payloads.name_of(place.run, replaced, "change"))


def forget_row(row: Checkpoint) -> None:
    """Delete the bytes of a row that is gone. Where that fails they are left to the sweep."""
    for column in ("change", "snapshot"):
        if kept := bytes(getattr(row, column)):
            _forget(row.backend, payloads.name_of(row.run_id, row.id, column), kept)


def _forget(backend: str, name: str, kept: bytes = b"") -> None:
    try:
        payloads.forget(backend, name, kept)
    except Exception as error:
        log.warning("payload_left_to_the_sweep", name=name, backend=backend, error=str(error))


def _row(
    place: Place, new: UUID, point: Point, *, parent: UUID | None, seq: int, end: LogEnd, at: datetime
) -> Checkpoint:
    return sql.new(
        Checkpoint,
        id=new,
        run_id=place.run,
        graph=place.graph,
        version=place.version,
        fingerprint=place.fingerprint,
        line=place.line,
        seq=seq,
        superstep=point.superstep,
        source=point.source,
        parent=parent,
        created_at=at,
        kept=point.kept,
        committed=point.committed,
        format=FORMAT,
        backend=place.backend,
        nodes=point.nodes,
        changed=sorted(point.ops),
        event_seq=end.seq,
        event_hash=end.hash,
        took_ms=point.took_ms,
    )


def sizes_of(payload: Payload) -> dict[str, int]:
    """Bytes of each channel's entry in the canonical document: name, colon, value."""
    return {name: _entry(name, value) for values in payload.state.values() for name, value in values.items()}


def _entry(name: str, value: Any) -> int:
    return len(canonical.encode({name: value})) - len("{}")


def _sizes_after(head: Head, point: Point) -> dict[str, int]:
    """The sizes of the channels' entries after this step, without encoding what only grew."""
    sizes = dict(head.sizes)
    for name, op in point.ops.items():
        partition = "artifacts" if name in point.payload.state["artifacts"] else "scratch"
        if op["op"] == "append" and op["items"] and head.payload.state[partition][name]:
            sizes[name] += len(canonical.encode(op["items"])) - 1
        else:
            sizes[name] = _entry(name, point.payload.state[partition][name])
    return sizes


def _size(payload: Payload, sizes: Mapping[str, int]) -> int:
    """The bytes of the canonical document."""
    rest = {**payload.document(), "scratch": {}, "artifacts": {}}
    commas = sum([len(values) - 1 for values in payload.state.values() if values])
    return len(canonical.encode(rest)) + commas + sum(sizes.values())
