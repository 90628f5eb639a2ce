"""What a worker process runs. The message names a run or a job and an epoch, and is trusted in nothing else.

Called by django-q2's worker, by its dotted name.
"""

from collections.abc import Callable
from uuid import UUID

import structlog

from checkpoints.leases import Claim
from orchestrator import jobs, runner
from orchestrator.worker.board import Board, installed

ADVANCE = "orchestrator.worker.tasks.advance"
WORK = "orchestrator.worker.tasks.work"

log = structlog.get_logger(__name__)


def advance(run_id: str, epoch: int) -> None:
    """One slice of the run, if the claim is still ours. Never raises: a lease that is left behind expires by itself."""
    claim = Claim(UUID(run_id), epoch)
    _slice(claim, lambda board: runner.work(claim.id, epoch, worker=board.worker, draining=board.draining))


def work(job_id: str, epoch: int) -> None:
    """The same for a job."""
    claim = Claim(UUID(job_id), epoch, job=True)
    _slice(claim, lambda board: jobs.work(claim.id, epoch, draining=board.draining))


def _slice(claim: Claim, act: Callable[[Board], None]) -> None:
    board = installed()
    if not board.slots.take(claim):
        return
    try:
        act(board)
    except Exception:
        log.exception("slice_failed", id=str(claim.id), job=claim.job, epoch=claim.epoch)
    finally:
        board.slots.leave(claim)
        board.ring()
