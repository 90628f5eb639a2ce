"""Forks of runs, as the verbs make them, for tests of what is read of them."""

from typing import Any

from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.store import CheckpointStore
from orchestrator import runs
from tests.support.rows import START


def forked(origin: Run, seq: int, patch: dict[str, Any] | None = None, *, by: Any, travel: str = "fork") -> Run:
    """A queued run from a checkpoint of another, patched."""
    left = Checkpoint.objects.get(run=origin.id, seq=seq)
    made = CheckpointStore().fork(left.id, patch)
    run = runs.resume(made.run, by=by)
    if not RunLine.objects.filter(run=run, number=1).exists():
        began(run, 1, left, travel=travel, by=by)
    return run


def began(run: Run, number: int, left: Checkpoint, *, travel: str = "rewind", by: Any = None) -> RunLine:
    """The row of a line of a run, which left from this checkpoint."""
    line = RunLine(
        run=run,
        number=number,
        travel=travel,
        parent_line=left.line,
        departure=left.id,
        departure_run=left.run_id,
        departure_seq=left.seq,
        departure_hash=left.content_hash,
        by=by,
        at=START,
    )
    sealed_rows.seal_and_encrypt([line], protection_of(run))
    line.save(force_insert=True)
    return line
