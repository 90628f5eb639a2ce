"""The first checkpoint of a tampered run that does not verify, and the newest one before it that does."""

import re
from dataclasses import dataclass
from uuid import UUID

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_checkpoints
from orchestrator.engine.errors import UNREADABLE
from orchestrator.runs.labels import display_error

MOST_VERIFIED = 1000
"""Checkpoints up to which a whole run is verified for its page. Of a longer one only the named checkpoint is."""
_NAMED = re.compile(r"checkpoints_checkpoint (?:[0-9a-f-]{36} )?([0-9a-f-]{36})")
"""A row of the table, by the ids of its run and its own."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What does not verify. `seq`: the number of the first checkpoint that does not; `intact`: the newest one before it
    that does; `all_before`: all before it were verified. Where nothing is `broken` any more, the record was restored.
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
        """Return which checkpoints are intact, in a sentence; empty where none is known to be."""
        if self.intact is None:
            return ""
        last = self.intact.seq
        if not self.all_before:
            return f"Checkpoint {last:,} before it is intact."
        return f"0 to {last:,} are intact." if last else "Checkpoint 0 is intact."


def damage_of(run: Run) -> Damage:
    """Return what is wrong with a tampered run. Verifies its checkpoints, so it is asked for tampered runs only."""
    if run.head_seq <= MOST_VERIFIED:
        return _verified_whole(run)
    return _verified_near(run)


def _verified_whole(run: Run) -> Damage:
    fault = verify_checkpoints(run.id)
    named = _named_checkpoint(run)
    if fault is None:
        # Something else than a checkpoint was named: a line of the log, a result. Resuming verifies all of it.
        return Damage(broken=named is None)
    first = Checkpoint.objects.filter(id=fault.checkpoint).first() if fault.checkpoint else named
    if first is None:
        return Damage()
    return Damage(first.seq, _newest_before(first), all_before=bool(fault.checkpoint))


def _verified_near(run: Run) -> Damage:
    named = _named_checkpoint(run)
    if named is None:
        return Damage()
    return Damage(named.seq, _newest_before(named), broken=not _is_intact(named))


def _named_checkpoint(run: Run) -> Checkpoint | None:
    """Return the checkpoint that the reason of the run's stop names."""
    error = display_error(run) or {}
    texts = (str(error.get(name) or "") for name in ("row", "message"))
    match = _NAMED.search(" ".join(texts))
    checkpoint = match[1] if match else str(error.get("checkpoint") or "")
    try:
        return Checkpoint.objects.filter(run=run.id, id=UUID(checkpoint)).first()
    except ValueError:
        return None


def _newest_before(row: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint right before this one where it verifies, else None."""
    before = Checkpoint.objects.filter(run=row.run_id, seq__lt=row.seq, kept=True).order_by("-seq").first()
    return before if before is not None and _is_intact(before) else None


def _is_intact(row: Checkpoint) -> bool:
    if fault_of(row, protection_of(row.run)) is not None:
        return False
    try:
        timeline.snapshot_of(row)
    except UNREADABLE:
        return False
    return True
