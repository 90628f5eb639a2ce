"""The timeline of a run: seals, hashes and chain of its checkpoints, and its state folded anew from their changes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from checkpoints import payloads
from checkpoints.core.keyring import DATA_KEY, ENCRYPTED, LONGEST_KEY_ID, key_of
from checkpoints.db.pages import pages
from checkpoints.ledger import reader
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.ops import Op

PAGE = 20
"""Rows read at once: each may hold a whole state."""


@dataclass(frozen=True, slots=True)
class _Folded:
    """How far the fold has got: number and content hash of the row before, and the row itself, None where it was
    removed or is missing; and the document at it, None where that is not known. `sound` says whether hash and row can
    be believed.
    """

    seq: int = -1
    hash: str = ""
    row: Checkpoint | None = None
    document: Any = None
    sound: bool = False

    @property
    def id(self) -> UUID | None:
        return self.row.id if self.row else None


def timeline(subject: Subject) -> Iterator[Fault]:
    """Every row, the state folded from the start on without reading a snapshot, and whether it ends at the run's head.

    Each snapshot is compared, byte for byte, with what the changes before it come to. Behind a stretch that was removed
    the fold goes on from the snapshot of the next row.
    """
    far = _Folded()
    for page in pages(Checkpoint.objects.filter(run=subject.run.id), "seq", size=PAGE):
        for row in page:
            if row.seq != far.seq + 1:
                far = _Folded(*subject.removed.checkpoints.follow(far.seq, far.hash, row.seq), sound=True)
                if row.seq != far.seq + 1:
                    yield from _missing(subject, far.seq + 1, row.seq)
                    far = _Folded(row.seq - 1)
            try:
                far = _Folded(row.seq, row.content_hash, row, _proven(subject, row, far), sound=True)
            except CountersignError as error:
                yield subject.refused(row, error, checkpoint=row.id)
                far = _Folded(row.seq, row.content_hash, row)
    yield from _ends(subject, far.row)


def _missing(subject: Subject, first: int, behind: int) -> Iterator[Fault]:
    one = first == behind - 1
    rows = f"at {first}" if one else f"from {first} to {behind - 1}"
    yield subject.gone(Checkpoint, f"{subject.run.id} {rows}", are="is" if one else "are")


def _ends(subject: Subject, last: Checkpoint | None) -> Iterator[Fault]:
    run = subject.run
    if last is None or (last.id != run.head and last.seq < run.head_seq):
        yield from _missing(subject, last.seq + 1 if last else 0, run.head_seq + 1)
    elif (last.id, last.content_hash, last.line) != (run.head, run.head_hash, run.line):
        yield subject.fault(run, f"names checkpoint {run.head} as its head, but {last.id} is", checkpoint=last.id)
    elif (last.seq, last.superstep) != (run.head_seq, run.superstep):
        says = f"says that its head is {run.head_seq} of superstep {run.superstep}"
        yield subject.fault(run, f"{says}, but it is {last.seq} of {last.superstep}", checkpoint=last.id)


def _proven(subject: Subject, row: Checkpoint, far: _Folded) -> Any:
    """The document at a row that is what it says, None where it is not known. Raises `TamperedRow`, `WrongKey`, and
    what its backend raises.
    """
    sealed_rows.verify_row(row, subject.protection)
    stored = {column: reader.stored_bytes(row, column) for column in ("change", "snapshot")}
    change = _kept(subject, row, "change", stored["change"], row.change_hash)
    if (far.sound or not row.seq) and row.content_hash != content_hash(row, _parents(row, far), subject.protection):
        raise TamperedRow(f"{sealed_rows.name_of(row)} is not chained to the checkpoint before it")
    _require_begin(row, far, alone=bool(row.snapshot_hash) or change.startswith(reader.WHOLE))
    document = _after(row, canonical.loads(change), far)
    _require_given(subject, row)
    if not (bytes(row.snapshot) or row.snapshot_hash):
        _require_size(subject, row, stored.values())
        return document
    snapshot = _kept(subject, row, "snapshot", stored["snapshot"], row.snapshot_hash)
    # Only now: of bytes that were cut, that they cannot be opened says more than their number.
    _require_size(subject, row, stored.values())
    if subject.erased.said_of(row) is None and document is not None and canonical.encode(document) != snapshot:
        raise TamperedRow(f"the snapshot of {sealed_rows.name_of(row)} is not what the changes up to it come to")
    return canonical.loads(snapshot) if document is None else document


def _require_begin(row: Checkpoint, far: _Folded, *, alone: bool) -> None:
    """Raise where a load of a row would begin where none can: it begins at the row itself, if that needs no other, or
    where that of the row before does.
    """
    before = far.row
    if row.anchor == row.seq and alone:
        return
    if before is not None and row.anchor != row.seq and (row.line, row.anchor) == (before.line, before.anchor):
        return
    raise TamperedRow(
        f"{sealed_rows.name_of(row)} cannot be loaded from {row.anchor}, where it says that a load begins"
    )


def _require_given(subject: Subject, row: Checkpoint) -> None:
    """Raise where the log says that a row was given another snapshot than it has."""
    given = subject.removed.snapshots.get(str(row.id))
    if given is not None and given != row.snapshot_hash:
        raise TamperedRow(f"{sealed_rows.name_of(row)} has another snapshot than its log says")


def _require_size(subject: Subject, row: Checkpoint, stored: Collection[bytes]) -> None:
    """Raise where a row says that another number of bytes is stored for it than there is."""
    # Older versions took over what a bundle said, and did not count what they put anew elsewhere.
    anew_elsewhere = row.backend != payloads.DATABASE and subject.erased.said_of(row) is not None
    if subject.run.imported or anew_elsewhere:
        return
    # Nor did their rotations count that the id of the newest key is longer, or shorter.
    slack = sum(LONGEST_KEY_ID for data in stored if _is_under_ring_key(data))
    size = sum(map(len, stored))
    if abs(row.stored_size - size) > slack:
        raise TamperedRow(f"{sealed_rows.name_of(row)} says that {row.stored_size} bytes are stored, not {size}")


def _is_under_ring_key(stored: bytes) -> bool:
    """Return whether a key of the settings encrypts this, and not the data key of its run."""
    return stored[:1] == ENCRYPTED and not key_of(stored).startswith(DATA_KEY)


def _kept(subject: Subject, row: Checkpoint, column: str, stored: bytes, hash_: str) -> bytes:
    data = reader.bytes_of(row, column, subject.protection, stored=stored)
    if not subject.is_hashed(row, column, data, hash_):
        raise TamperedRow(f"{column} of {sealed_rows.name_of(row)} is not what was hashed")
    return data


def _parents(row: Checkpoint, far: _Folded) -> str:
    """The content hash of a row's parent; of one on another line, where a line begins."""
    if row.parent is None:
        return ""
    if far.id == row.parent:
        return far.hash
    found = Checkpoint.objects.filter(id=row.parent).values_list("content_hash", flat=True).first()
    if found is None:
        # Of a fork that was imported the origin may be elsewhere; the sealed row of its line names the hash.
        departed = RunLine.objects.filter(run=row.run_id, departure=row.parent)
        found = departed.values_list("departure_hash", flat=True).first()
    # Behind a removed stretch the parent is the last row of it.
    return found or ("" if far.row else far.hash)


def _after(row: Checkpoint, change: list[Op], far: _Folded) -> Any:
    """The document after a row's change; None where that before it is not known."""
    if change and change[0]["op"] == "set":
        return reader.changed_channels({}, change)
    if far.id == row.parent:
        return None if far.document is None else reader.changed_channels(far.document, change)
    before = reader.document_at(row.parent) if row.parent else None
    return None if before is None else reader.changed_channels(before, change)
