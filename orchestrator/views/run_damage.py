"""The damage of a tampered run: its first checkpoint that does not verify, and the one
right before it, if that verifies.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_checkpoints
from orchestrator.engine.errors import UNREADABLE
from orchestrator.run_access.labels import display_error

MOST_VERIFIED = 1000
"""The most checkpoints of a run that is verified whole for its page. In a longer run,
only the named checkpoint and the one before it are verified.
"""
_NAMED = re.compile(r"checkpoints_checkpoint (?:[0-9a-f-]{36} )?([0-9a-f-]{36})")
"""The name of a checkpoint's row: its table, the id of its run if it has one, its id."""


@dataclass(frozen=True, slots=True)
class RunDamage:
    """The part of a run that does not verify. `seq`: the number of its first broken
    checkpoint; `intact`: the checkpoint right before it, if that verifies;
    `all_before`: all before it were verified. If nothing is `broken` now, the record
    was restored.
    """

    seq: int | None = None
    intact: Checkpoint | None = None
    all_before: bool = False
    broken: bool = True

    @property
    def title(self) -> str:
        """Return what does not verify, in a sentence without its full stop."""
        if self.seq is None:
            return "A record does not match what was written"
        return f"Checkpoint {self.seq:,} does not match its seal"

    @property
    def intact_in_words(self) -> str:
        """Return which checkpoints are intact, in a sentence; empty if none is known to
        be.
        """
        if self.intact is None:
            return ""
        last = self.intact.seq
        if not self.all_before:
            return f"Checkpoint {last:,} before it is intact."
        if last == 0:
            return "Checkpoint 0 is intact."
        return f"0 to {last:,} are intact."


def damage_of(run: Run) -> RunDamage:
    """Return the damage of a tampered run. Verifies every checkpoint of a run of up to
    `MOST_VERIFIED`, of a longer one only those near the named checkpoint; call it for
    tampered runs only.
    """
    if run.head_seq <= MOST_VERIFIED:
        return _verified_whole(run)
    return _verified_near(run)


def _verified_whole(run: Run) -> RunDamage:
    """Return the damage after all checkpoints of the run were verified."""
    fault = verify_checkpoints(run.id)
    named = _named_checkpoint(run)
    if fault is None:
        # If no checkpoint was named, something else is broken: a line of the log, a
        # result. Resuming verifies all of it.
        return RunDamage(broken=named is None)
    if not fault.checkpoint:
        return _damage_from(named)
    first = Checkpoint.objects.filter(id=fault.checkpoint).first()
    return _damage_from(first, all_before=True)


def _damage_from(first: Checkpoint | None, *, all_before: bool = False) -> RunDamage:
    """Return the damage that begins at this checkpoint; None: it is unknown where."""
    if first is None:
        return RunDamage()
    return RunDamage(first.seq, _intact_before(first), all_before=all_before)


def _verified_near(run: Run) -> RunDamage:
    """Return the damage after only the named checkpoint and the one before it were
    verified.
    """
    named = _named_checkpoint(run)
    if named is None:
        return RunDamage()
    return RunDamage(
        named.seq,
        intact=_intact_before(named),
        # Put back from a backup, it may verify again.
        broken=not _is_intact(named),
    )


def _named_checkpoint(run: Run) -> Checkpoint | None:
    """Return the checkpoint that the reason of the run's stop names."""
    error = display_error(run) or {}
    text = f"{error.get('row') or ''} {error.get('message') or ''}"
    checkpoint = str(error.get("checkpoint") or "")
    match = _NAMED.search(text)
    if match:
        checkpoint = match[1]
    try:
        named = UUID(checkpoint)
    except ValueError:
        return None
    return Checkpoint.objects.filter(run=run.id, id=named).first()


def _intact_before(row: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint right before this one if it verifies, else None."""
    earlier = Checkpoint.objects.filter(run=row.run_id, seq__lt=row.seq, kept=True)
    before = earlier.order_by("-seq").first()
    if before is None or not _is_intact(before):
        return None
    return before


def _is_intact(row: Checkpoint) -> bool:
    if fault_of(row, protection_of(row.run)) is not None:
        return False
    try:
        timeline.snapshot_of(row)
    except UNREADABLE:
        return False
    return True
