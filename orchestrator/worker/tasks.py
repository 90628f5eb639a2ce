"""What a worker process runs. The message names a run or a job and an epoch, and is trusted in nothing else.

Called by django-q2's worker, by its dotted name. Who has worked on what he was told of goes on to what is due next, in
the same slot: a message for each of many short runs would cost as much as the runs.
"""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from checkpoints.queue import jobs as queue
from checkpoints.queue import leases
from checkpoints.queue.leases import Claim, Claimable
from orchestrator.execution import loop as runner
from orchestrator.jobs import kinds as jobs
from orchestrator.worker import claimable as abilities
from orchestrator.worker.round_robin import Turns
from orchestrator.worker.shared_state import Board, installed

ADVANCE = "orchestrator.worker.tasks.advance"
WORK = "orchestrator.worker.tasks.work"
GOING_ON_SECONDS = 1.0
"""For so long after a message a worker begins what is due by itself: short beside what it may take for one slice."""

log = structlog.get_logger(__name__)


def advance(run_id: str, epoch: int) -> None:
    """One slice of the run, if the claim is still ours. Never raises: a lease that is left behind expires by itself."""
    claim = Claim(UUID(run_id), epoch)
    _in_slot(claim, lambda board: runner.work(claim.id, epoch, worker=board.worker, draining=board.draining))


def work(job_id: str, epoch: int) -> None:
    """The same for a job."""
    claim = Claim(UUID(job_id), epoch, job=True)
    _in_slot(claim, lambda board: jobs.work(claim.id, epoch, draining=board.draining))


def _in_slot(claim: Claim, act: Callable[[Board], None]) -> None:
    board = installed()
    if not board.slots.take(claim):
        return
    hand = _Hand(board, claim)
    try:
        act(board)
        hand.go_on()
    except Exception:
        log.exception("slice_failed", **hand.told())
    finally:
        board.slots.leave(claim)
        board.ring()


class _Hand:
    """A slot that this process has taken, and what is in it now: None while it looks for the next."""

    def __init__(self, board: Board, claim: Claim) -> None:
        self._board = board
        self._claim: Claim | None = claim
        self._until = time.monotonic() + GOING_ON_SECONDS
        self._turns = Turns()

    def told(self) -> dict[str, Any]:
        """For the log."""
        now = self._claim
        return {"id": str(now.id), "job": now.job, "epoch": now.epoch} if now else {"id": ""}

    def go_on(self) -> None:
        """Slices of what is due, one after the other, until nothing is, the worker drains or it is time for a message,
        by which the process shows that it is there.
        """
        self._claim = None
        can = abilities.claimable() if self._may() else None
        while can and self._may():
            looks = self._turns.next(lambda: self._run(can), self._job)
            if not any(look() for look in looks):
                return

    def _may(self) -> bool:
        return time.monotonic() < self._until and not self._board.draining()

    def _run(self, can: Claimable) -> bool:
        hold = leases.begin_next(worker=self._board.worker, only=can)
        if hold is not None:
            self._claim = Claim(hold.id, hold.epoch)
            runner.work_on(hold, draining=self._board.draining)
            self._claim = None
        return hold is not None

    def _job(self) -> bool:
        found = queue.claim(worker=self._board.worker, limit=1)
        self._turns.jobs_seen(found=bool(found))
        for job_id, epoch in found:
            self._claim = Claim(job_id, epoch, job=True)
            jobs.work(job_id, epoch, draining=self._board.draining)
            self._claim = None
        return bool(found)
