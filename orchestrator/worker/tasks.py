"""What a worker process runs. The message names a run and an epoch, and is trusted in nothing else.

Called by django-q2's worker, by its dotted name.
"""

from uuid import UUID

import structlog

from checkpoints.leases import Claim
from orchestrator import runner
from orchestrator.worker.board import installed

ADVANCE = "orchestrator.worker.tasks.advance"

log = structlog.get_logger(__name__)


def advance(run_id: str, epoch: int) -> None:
    """One slice of the run, if the claim is still ours. Never raises: a lease that is left behind expires by itself."""
    board, claim = installed(), Claim(UUID(run_id), epoch)
    if not board.slots.take(claim):
        return
    try:
        runner.work(claim.id, epoch, worker=board.worker, draining=board.draining)
    except Exception:
        log.exception("slice_failed", run=run_id, epoch=epoch)
    finally:
        board.slots.leave(claim)
        board.ring()
