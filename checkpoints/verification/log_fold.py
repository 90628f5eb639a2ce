"""The state at a checkpoint, rebuilt from the log alone: the changes that its lines refer to, folded in their order.

The log is the source: a line that saves a checkpoint names the hash of what changed, and the row of that checkpoint
keeps the bytes. A fold begins where a line of the run begins, or at the newest snapshot that a row was given when what
came before it was removed; no other snapshot is read. `verify_runs` shows the same row by row: the log's examiner that
lines and rows name the same changes in the same order, the timeline's that they come to each snapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import UUID

from checkpoints.db.pages import pages
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.verification.line_facts import lacks
from checkpoints.verification.removed_history import RemovedHistory, removed_history
from orchestrator.engine import canonical, ops
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.frozen import frozen

BEGINNINGS = ("run_started", "line_begun")
"""Lines whose checkpoint says the whole of what it holds."""
SAVES = (*BEGINNINGS, "checkpoint_saved", "checkpoint_kept")
ROWS = 100
"""Changes that are read at once."""


@frozen
class LoggedChange:
    """What a line of the log says of a checkpoint that stays: its id, and the hash of what changed; empty where the
    line that told it was removed. `whole`: it needs nothing before it.
    """

    checkpoint: UUID
    hash: str
    whole: bool


def document_by_log(checkpoint: UUID) -> dict[str, Any]:
    """The document of a kept checkpoint (state, frontier, versions), rebuilt from the log of its run.

    Its cost is linear in what the log says since its line began. Raises `UnknownThing`; `TamperedRow` or `WrongKey`
    where a line, a change or the snapshot that it begins with is gone or not what was written; `UnknownThing` too where
    retention removed lines that the state needs.
    """
    found = Checkpoint.objects.filter(id=checkpoint, kept=True).values_list("run_id", flat=True).first()
    run = Run.objects.filter(id=found).first() if found else None
    if run is None:
        raise UnknownThing(f"there is no checkpoint {checkpoint}", checkpoint=str(checkpoint))
    protection = protection_of(run)
    removed = removed_history(run.id, protection)
    changes = _since_beginning(_logged(run, protection, until=checkpoint), removed.snapshots)
    if not changes or changes[-1].checkpoint != checkpoint:
        if removed.events:
            raise UnknownThing(f"the line that tells that checkpoint {checkpoint} was saved was removed")
        raise TamperedRow(f"the log of run {run.id} does not say that checkpoint {checkpoint} was saved")
    return _folded(changes, removed, protection)


def _logged(run: Run, protection: Protection, *, until: UUID) -> Iterator[LoggedChange]:
    """What the log says was saved and stays, in order, up to this checkpoint."""
    hashes: dict[UUID, str] = {}
    for page in pages(RunEvent.objects.filter(run=run.id, type__in=SAVES), "seq"):
        for line in page:
            sealed_rows.verify_row(line, protection)
            facts = _facts_of(line)
            one = UUID(facts["checkpoint"])
            hashes[one] = facts.get("change", hashes.get(one, ""))
            if line.type in (*BEGINNINGS, "checkpoint_kept") or facts["kept"]:
                yield LoggedChange(one, hashes.pop(one), line.type in BEGINNINGS)
            if one == until and one not in hashes:
                return


def _facts_of(line: RunEvent) -> dict[str, Any]:
    facts: dict[str, Any] = sealed_columns.read_value(line, "payload")
    reason = lacks(line, facts)
    if reason:
        raise TamperedRow(f"{sealed_rows.name_of(line)} {reason}", row=sealed_rows.name_of(line))
    return facts


def _since_beginning(logged: Iterator[LoggedChange], snapshots: Mapping[str, str]) -> list[LoggedChange]:
    """The changes since the last that needs nothing before it; at first what was given a snapshot in a row's place
    whose own line was removed.
    """
    found: list[LoggedChange] = []
    for one in logged:
        if one.whole or str(one.checkpoint) in snapshots:
            found = []
        elif not found:
            found = _reanchored(snapshots, one)
        found.append(one)
    return found


def _reanchored(snapshots: Mapping[str, str], first: LoggedChange) -> list[LoggedChange]:
    """The row before the first one that the log names still, where it was given a snapshot."""
    rows = Checkpoint.objects.filter(id__in=[first.checkpoint, *snapshots]).order_by("seq").values_list("id", flat=True)
    ids = list(rows)
    at = ids.index(first.checkpoint) if first.checkpoint in ids else 0
    return [LoggedChange(ids[at - 1], "", whole=True)] if at else []


@dataclass(slots=True)
class _Fold:
    """How far a fold has got: the document, and the checkpoint that it is the document of."""

    removed: RemovedHistory
    protection: Protection
    document: dict[str, Any] = field(default_factory=dict)
    at: UUID | None = None

    def take(self, one: LoggedChange, row: Checkpoint | None) -> None:
        """Go on by one change. Raises as `document_by_log` does."""
        if row is None:
            raise TamperedRow(f"checkpoint {one.checkpoint} is gone, though the log says that it was saved")
        given = self.removed.snapshots.get(str(one.checkpoint))
        if given is not None:
            self.document = canonical.loads(_proven(row, "snapshot", given, self.protection))
        else:
            self._require_next(one, row)
            change = canonical.loads(_proven(row, "change", one.hash, self.protection))
            self.document = reduce(ops.apply_to_own, change, {} if one.whole else self.document)
        self.at = row.id

    def _require_next(self, one: LoggedChange, row: Checkpoint) -> None:
        """Raise where a change is not against the checkpoint that the log names before it."""
        if one.whole or row.parent == self.at:
            return
        if self.removed.events:
            raise UnknownThing(f"the lines that tell what came before checkpoint {row.id} were removed")
        raise TamperedRow(f"the log names another checkpoint before {row.id} than the one that it was made from")


def _folded(changes: Sequence[LoggedChange], removed: RemovedHistory, protection: Protection) -> dict[str, Any]:
    fold = _Fold(removed, protection)
    for start in range(0, len(changes), ROWS):
        part = changes[start : start + ROWS]
        wanted = Checkpoint.objects.filter(id__in=[one.checkpoint for one in part])
        anchored = any(str(one.checkpoint) in removed.snapshots for one in part)
        rows = {row.id: row for row in (wanted if anchored else wanted.defer("snapshot"))}
        for one in part:
            fold.take(one, rows.get(one.checkpoint))
    return fold.document


def _proven(row: Checkpoint, column: str, hash_: str, protection: Protection) -> bytes:
    data = reader.bytes_of(row, column, protection)
    if protection.digest(data) != hash_:
        name = sealed_rows.name_of(row)
        raise TamperedRow(f"{column} of {name} is not what the log says", row=name, checkpoint=str(row.id))
    return data
