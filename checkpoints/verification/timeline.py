"""Examines the checkpoints of a run: their seals, hashes and chain, and whether the
state folded again from their changes is the one that they hold.
"""

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
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.values import canonical
from orchestrator.engine.values.ops import Op

PAGE = 20
"""The most rows read at once: each may hold a whole state."""
_NOT_APPLICABLE = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors of applying what is no change, or the change of another document."""


@dataclass(frozen=True, slots=True)
class _Folded:
    """How far the fold has got.

    `seq`, `hash`: number and content hash of the last row. `row`: the row itself; None
    if it was removed or is missing. `document`: the document at it; None if that is not
    known. `sound`: whether hash and row can be believed.
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
    """Yield the faults of every checkpoint, folding the state from the start without
    reading a snapshot, and then of the run's head.

    Each snapshot is compared, byte for byte, with the result of the changes before it.
    After a removed stretch the fold goes on from the snapshot of the next row.
    """
    folded = _Folded()
    for page in pages(Checkpoint.objects.filter(run=subject.run.id), "seq", size=PAGE):
        for row in page:
            if row.seq != folded.seq + 1:
                folded = _after_removed_rows(subject, folded, row.seq)
            # A row that was not removed on purpose is missing.
            if row.seq != folded.seq + 1:
                yield from _missing_rows(subject, folded.seq + 1, row.seq)
                folded = _Folded(row.seq - 1)
            try:
                document = _verified_document(subject, row, folded)
            except CountersignError as error:
                yield subject.refused(row, error, checkpoint=row.id)
                folded = _Folded(row.seq, row.content_hash, row)
            else:
                folded = _Folded(
                    row.seq, row.content_hash, row, document=document, sound=True
                )
    yield from _faults_of_head(subject, folded.row)


def _after_removed_rows(subject: Subject, folded: _Folded, next_seq: int) -> _Folded:
    """Return how far the fold gets by the stretches that were removed on purpose before
    the row `next_seq`.
    """
    removed = subject.removed.checkpoints
    seq, hash_ = removed.follow(folded.seq, folded.hash, next_seq)
    return _Folded(seq, hash_, sound=True)


def _missing_rows(subject: Subject, first: int, behind: int) -> Iterator[Fault]:
    """Yield a fault for the checkpoints from `first` up to the one before `behind`."""
    last = behind - 1
    run = subject.run.id
    if first == last:
        yield subject.missing_row(Checkpoint, f"{run} at {first}", are="is")
    else:
        yield subject.missing_row(
            Checkpoint, f"{run} from {first} to {last}", are="are"
        )


def _faults_of_head(subject: Subject, last: Checkpoint | None) -> Iterator[Fault]:
    """Yield a fault unless the last checkpoint is the head that the run's row names."""
    run = subject.run
    if last is None:
        yield from _missing_rows(subject, 0, run.head_seq + 1)
        return
    if last.id != run.head and last.seq < run.head_seq:
        yield from _missing_rows(subject, last.seq + 1, run.head_seq + 1)
        return
    head = (run.head, run.head_hash, run.line)
    if (last.id, last.content_hash, last.line) != head:
        yield subject.fault(
            run,
            f"names checkpoint {run.head} as its head, but {last.id} is",
            checkpoint=last.id,
        )
    elif (last.seq, last.superstep) != (run.head_seq, run.superstep):
        yield subject.fault(
            run,
            f"says that its head is {run.head_seq} of superstep {run.superstep},"
            f" but it is {last.seq} of {last.superstep}",
            checkpoint=last.id,
        )


def _verified_document(subject: Subject, row: Checkpoint, before: _Folded) -> Any:
    """Return the document at a row that is unchanged; None if that is unknown. Raises
    `TamperedRow`, `WrongKey`, and what its backend raises.
    """
    sealed_rows.verify_row(row, subject.protection)
    stored_change = reader.stored_bytes(row, "change")
    stored_snapshot = reader.stored_bytes(row, "snapshot")
    change = _verified_bytes(subject, row, "change", stored_change, row.change_hash)
    _require_chain(subject, row, before)
    _require_anchor(row, before, is_whole=change.startswith(reader.WHOLE))
    document = _document_after(row, canonical.loads(change), before)
    _require_logged_snapshot(subject, row)

    snapshot = None
    if bytes(row.snapshot) or row.snapshot_hash:
        snapshot = _verified_bytes(
            subject, row, "snapshot", stored_snapshot, row.snapshot_hash
        )
    # Only now: that cut bytes cannot be decrypted says more than their number does.
    _require_size(subject, row, (stored_change, stored_snapshot))
    if snapshot is None:
        return document
    if document is None:
        return _document_of(row, snapshot)
    _require_same_document(subject, row, snapshot, document)
    return document


def _document_of(row: Checkpoint, snapshot: bytes) -> Any:
    """Return the document that a snapshot holds. Raises `TamperedRow` if its bytes are
    not JSON.
    """
    try:
        return canonical.loads(snapshot)
    except ValueError as error:
        raise TamperedRow(
            f"the snapshot of {sealed_rows.name_of(row)} cannot be read"
        ) from error


def _require_chain(subject: Subject, row: Checkpoint, before: _Folded) -> None:
    """Raise unless the row's content hash follows from that of its parent."""
    # After a fault, which has been reported, the hash of the row before is not known.
    # The first row needs none.
    if row.seq and not before.sound:
        return
    computed = content_hash(row, _parent_hash(row, before), subject.protection)
    if row.content_hash != computed:
        raise TamperedRow(
            f"{sealed_rows.name_of(row)} is not chained to the checkpoint before it"
        )


def _require_anchor(row: Checkpoint, before: _Folded, *, is_whole: bool) -> None:
    """Raise where a load of a row would begin at a row where it cannot: it begins at
    the row itself, if that needs no other, or where a load of the row before begins.
    """
    if row.anchor == row.seq:
        # A snapshot, or a change that replaces all channels, needs no other row.
        is_right = bool(row.snapshot_hash) or is_whole
    elif before.row is None:
        is_right = False
    else:
        is_right = (row.line, row.anchor) == (before.row.line, before.row.anchor)
    if not is_right:
        raise TamperedRow(
            f"{sealed_rows.name_of(row)} cannot be loaded from {row.anchor},"
            " where it says that a load begins"
        )


def _require_logged_snapshot(subject: Subject, row: Checkpoint) -> None:
    """Raise where the log says that a row was given another snapshot than it has."""
    logged_hash = subject.removed.snapshots.get(str(row.id))
    if logged_hash is not None and logged_hash != row.snapshot_hash:
        raise TamperedRow(
            f"{sealed_rows.name_of(row)} has another snapshot than its log says"
        )


def _require_same_document(
    subject: Subject, row: Checkpoint, snapshot: bytes, document: Any
) -> None:
    """Raise unless a snapshot is the document that the changes up to it result in."""
    # An erased row was compared with what its erasure recorded instead.
    if subject.erased.said_of(row) is not None:
        return
    if canonical.encode(document) != snapshot:
        raise TamperedRow(
            f"the snapshot of {sealed_rows.name_of(row)} is not what the changes up to"
            " it come to"
        )


def _require_size(subject: Subject, row: Checkpoint, stored: Collection[bytes]) -> None:
    """Raise where the row names another number of stored bytes than there are."""
    # Older versions copied the number from a bundle, and did not count the bytes that
    # an erasure wrote to another backend.
    is_erased_elsewhere = (
        row.backend != payloads.DATABASE and subject.erased.said_of(row) is not None
    )
    if subject.run.imported or is_erased_elsewhere:
        return
    # Their rotations of keys ignored that the id of the new key may be longer or
    # shorter.
    slack = sum(LONGEST_KEY_ID for data in stored if _is_under_ring_key(data))
    size = sum(map(len, stored))
    if abs(row.stored_size - size) > slack:
        raise TamperedRow(
            f"{sealed_rows.name_of(row)} says that {row.stored_size} bytes are stored,"
            f" not {size}"
        )


def _is_under_ring_key(stored: bytes) -> bool:
    """Return whether a key of the settings encrypts this, and not the data key of its
    run.
    """
    return stored[:1] == ENCRYPTED and not key_of(stored).startswith(DATA_KEY)


def _verified_bytes(
    subject: Subject, row: Checkpoint, column: str, stored: bytes, hash_: str
) -> bytes:
    """Return the canonical bytes of a payload column. Raises `TamperedRow` if they have
    another hash, and as `reader.bytes_of` does.
    """
    data = reader.bytes_of(row, column, subject.protection, stored=stored)
    if not subject.is_hashed(row, column, data, hash_):
        raise TamperedRow(
            f"{column} of {sealed_rows.name_of(row)} is not what was hashed"
        )
    return data


def _parent_hash(row: Checkpoint, before: _Folded) -> str:
    """Return the content hash of a row's parent, which is on another line where a line
    begins. At most two queries, none if the parent is the row before.
    """
    if row.parent is None:
        return ""
    if before.id == row.parent:
        return before.hash
    parent = Checkpoint.objects.filter(id=row.parent)
    hash_ = parent.values_list("content_hash", flat=True).first()
    if hash_ is None:
        # The origin of an imported fork may be in another installation; the sealed row
        # of its line names the hash.
        line = RunLine.objects.filter(run=row.run_id, departure=row.parent)
        hash_ = line.values_list("departure_hash", flat=True).first()
    if hash_:
        return hash_
    # After a removed stretch, the parent is its last row.
    return "" if before.row else before.hash


def _document_after(row: Checkpoint, change: list[Op], before: _Folded) -> Any:
    """Return the document after a row's change; None if the one before it is not known."""
    if change and change[0]["op"] == "set":
        return reader.changed_channels({}, change)
    try:
        document = None
        if before.id == row.parent:
            document = before.document
        elif row.parent:
            document = reader.document_at(row.parent)
        if document is None:
            return None
        return reader.changed_channels(document, change)
    except _NOT_APPLICABLE as error:
        # The parent's rows were not verified: another row may have its id.
        raise TamperedRow(
            f"the changes up to {sealed_rows.name_of(row)} cannot be applied"
        ) from error
