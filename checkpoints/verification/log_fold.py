"""Rebuilds the state at a checkpoint from the log alone, by folding the changes that
its lines refer to in their order.

The log is the source: a line that saves a checkpoint names the hash of the change, and
the row of that checkpoint keeps the bytes. A fold begins where a line of the run
begins, or at the newest snapshot that a row was given when what came before it was
removed; no other snapshot is read. `verify_runs` shows the same row by row: the
examiner of the log that lines and rows name the same changes in the same order, that of
the timeline that these changes result in each snapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import UUID

from checkpoints.db.pages import pages
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.verification.line_facts import required_facts
from checkpoints.verification.removed_history import RemovedHistory, removed_history
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical, ops

BEGINNINGS = ("run_started", "line_begun")
"""Lines whose checkpoint has a change that sets the whole document."""
SAVES = (*BEGINNINGS, "checkpoint_saved", "checkpoint_kept")
ROWS = 100
"""The most changes that are read at once."""


@frozen
class LoggedChange:
    """A checkpoint that is kept, as the log has it.

    `hash`: that of its change; empty if the line that named it was removed. `whole`:
    the change needs nothing before it.
    """

    checkpoint: UUID
    hash: str
    whole: bool


def document_by_log(checkpoint: UUID) -> dict[str, Any]:
    """Return the document of a kept checkpoint (state, frontier, versions), rebuilt
    from the log of its run. The cost is linear in what the log holds since its line
    began.

    Raises `UnknownThing`, including where retention removed lines that the state needs;
    `TamperedRow` or `WrongKey` if a line, a change or the snapshot that it begins with
    is gone or not what was written.
    """
    run = _run_of(checkpoint)
    protection = protection_of(run)
    removed = removed_history(run.id, protection)
    logged = _logged_changes(run, protection, until=checkpoint)
    changes = _since_beginning(logged, removed.snapshots)
    if not changes or changes[-1].checkpoint != checkpoint:
        # Without the removed lines nobody can say whether anything is wrong.
        if removed.events:
            raise UnknownThing(
                f"the line that tells that checkpoint {checkpoint} was saved was"
                " removed"
            )
        raise TamperedRow(
            f"the log of run {run.id} does not say that checkpoint {checkpoint} was"
            " saved"
        )
    return _folded(changes, removed, protection)


def _run_of(checkpoint: UUID) -> Run:
    rows = Checkpoint.objects.filter(id=checkpoint, kept=True)
    run_id = rows.values_list("run_id", flat=True).first()
    run = None
    if run_id:
        run = Run.objects.filter(id=run_id).first()
    if run is None:
        raise UnknownThing(
            f"there is no checkpoint {checkpoint}", checkpoint=str(checkpoint)
        )
    return run


def _logged_changes(
    run: Run, protection: Protection, *, until: UUID
) -> Iterator[LoggedChange]:
    """Yield what the log says was saved and kept, in order, up to this checkpoint."""
    # A checkpoint may be saved by one line and kept by a later one.
    hashes: dict[UUID, str] = {}
    for page in pages(RunEvent.objects.filter(run=run.id, type__in=SAVES), "seq"):
        for line in page:
            sealed_rows.verify_row(line, protection)
            facts = required_facts(line)
            checkpoint = UUID(facts["checkpoint"])
            saved_hash = hashes.get(checkpoint, "")
            hashes[checkpoint] = facts.get("change", saved_hash)

            is_beginning = line.type in BEGINNINGS
            if is_beginning or line.type == "checkpoint_kept" or facts["kept"]:
                yield LoggedChange(checkpoint, hashes.pop(checkpoint), is_beginning)
            # A line that only saved a recovery point may come before the one that keeps
            # it.
            if checkpoint == until and checkpoint not in hashes:
                return


def _since_beginning(
    logged: Iterator[LoggedChange], snapshots: Mapping[str, str]
) -> list[LoggedChange]:
    """Return the changes since the last one that needs nothing before it. If the line
    of that one was removed, they begin with the row that was given a snapshot instead.
    """
    changes: list[LoggedChange] = []
    for change in logged:
        if change.whole or str(change.checkpoint) in snapshots:
            changes = []
        elif not changes:
            changes = _snapshot_before(change, snapshots)
        changes.append(change)
    return changes


def _snapshot_before(
    first: LoggedChange, snapshots: Mapping[str, str]
) -> list[LoggedChange]:
    """Return the nearest row before the first one that the log still names that was
    given a snapshot; nothing if there is none. One query.
    """
    # The log has no line of that row, so the rows themselves must show which is
    # nearest.
    rows = Checkpoint.objects.filter(id__in=[first.checkpoint, *snapshots])
    ids = list(rows.order_by("seq").values_list("id", flat=True))
    if first.checkpoint not in ids:
        return []
    index = ids.index(first.checkpoint)
    if index == 0:
        return []
    return [LoggedChange(ids[index - 1], "", whole=True)]


@dataclass(slots=True)
class _Fold:
    """How far a fold has got: the document, and its checkpoint."""

    removed: RemovedHistory
    protection: Protection
    document: dict[str, Any] = field(default_factory=dict)
    checkpoint: UUID | None = None

    def take(self, change: LoggedChange, row: Checkpoint | None) -> None:
        """Fold one more change into the state. Raises as `document_by_log` does."""
        if row is None:
            raise TamperedRow(
                f"checkpoint {change.checkpoint} is gone, though the log says that it"
                " was saved"
            )
        snapshot_hash = self.removed.snapshots.get(str(change.checkpoint))
        # The log itself has the hash of this snapshot, so nothing before it is needed.
        if snapshot_hash is not None:
            data = _verified_bytes(row, "snapshot", snapshot_hash, self.protection)
            self.document = canonical.loads(data)
        else:
            self._require_next(change, row)
            data = _verified_bytes(row, "change", change.hash, self.protection)
            before = {} if change.whole else self.document
            self.document = reduce(ops.apply_to_own, canonical.loads(data), before)
        self.checkpoint = row.id

    def _require_next(self, change: LoggedChange, row: Checkpoint) -> None:
        """Raise unless a change was made from the checkpoint that the log names before
        it.
        """
        if change.whole or row.parent == self.checkpoint:
            return
        if self.removed.events:
            raise UnknownThing(
                f"the lines that tell what came before checkpoint {row.id} were removed"
            )
        raise TamperedRow(
            f"the log names another checkpoint before {row.id} than the one that it was"
            " made from"
        )


def _folded(
    changes: Sequence[LoggedChange], removed: RemovedHistory, protection: Protection
) -> dict[str, Any]:
    """Return the document that these changes result in. One query for 100 of them."""
    fold = _Fold(removed, protection)
    for start in range(0, len(changes), ROWS):
        part = changes[start : start + ROWS]
        ids = [change.checkpoint for change in part]
        stored = Checkpoint.objects.filter(id__in=ids)
        # A snapshot may be a whole state, so only those that a fold begins with are
        # read.
        if not any(str(id) in removed.snapshots for id in ids):
            stored = stored.defer("snapshot")
        rows = {row.id: row for row in stored}
        for change in part:
            fold.take(change, rows.get(change.checkpoint))
    return fold.document


def _verified_bytes(
    row: Checkpoint, column: str, hash_: str, protection: Protection
) -> bytes:
    """Return the canonical bytes of a payload column. Raises `TamperedRow` if they have
    another hash than the log says, and as `reader.bytes_of` does.
    """
    data = reader.bytes_of(row, column, protection)
    if protection.digest(data) != hash_:
        name = sealed_rows.name_of(row)
        raise TamperedRow(
            f"{column} of {name} is not what the log says",
            row=name,
            checkpoint=str(row.id),
        )
    return data
