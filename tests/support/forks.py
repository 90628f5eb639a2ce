"""Forks of runs, and rows of lines, for tests of what is read of them."""

from typing import Any

from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from tests.support.rows import START


def forked(
    origin: Run, seq: int, patch: dict[str, Any] | None = None, *, by: Any
) -> Run:
    """A queued run from a checkpoint of another, patched. Effects may happen again."""
    departed = Checkpoint.objects.get(run=origin.id, seq=seq)
    again = [str(node) for node in runs.plan(departed.id, patch=patch).needs_yes]
    return runs.fork(departed.id, patch=patch, allow_effects=again, by=by)


def began(
    run: Run, number: int, left: Checkpoint, *, travel: str = "rewind", by: Any = None
) -> RunLine:
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
