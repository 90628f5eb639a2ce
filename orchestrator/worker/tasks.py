"""What a worker process runs. The message names a run or a job and an epoch, and is trusted in nothing else.

django-q2's worker calls these functions by their dotted names. After the run or job that a message names, the slot goes
on to what is due next: a message for each of many short runs would cost as much as the runs.
"""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from checkpoints.queue import jobs as job_queue
from checkpoints.queue import leases
from checkpoints.queue.queue import Claim, Claimable
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker import claimable
from orchestrator.worker.round_robin import RoundRobin
from orchestrator.worker.shared_state import SharedState, installed_state

ADVANCE = "orchestrator.worker.tasks.advance"
WORK = "orchestrator.worker.tasks.work"
GOING_ON_SECONDS = 1.0
"""For so long after a message a worker begins what is due by itself: short beside what it may take for one slice."""

log = structlog.get_logger(__name__)


def advance(run_id: str, epoch: int) -> None:
    """Execute one slice of the run, if the claim is still ours. Never raises: a lease left behind expires by itself."""
    claim = Claim(UUID(run_id), epoch)
    _in_slot(claim, lambda state: loop.run_slice(claim.id, epoch, worker=state.worker, draining=state.draining))


def work(job_id: str, epoch: int) -> None:
    """The same for a job."""
    claim = Claim(UUID(job_id), epoch, job=True)
    _in_slot(claim, lambda state: kinds.run_job(claim.id, epoch, draining=state.draining))


def _in_slot(claim: Claim, act: Callable[[SharedState], None]) -> None:
    state = installed_state()
    if not state.slots.take(claim):
        return
    slot_work = _SlotWork(state, claim)
    try:
        act(state)
        slot_work.go_on()
    except Exception:
        log.exception("slice_failed", **slot_work.facts())
    finally:
        state.slots.leave(claim)
        state.ring()


class _SlotWork:
    """A slot that this process has taken, and what is in it now: None while it looks for the next."""

    def __init__(self, state: SharedState, claim: Claim) -> None:
        self._state = state
        self._claim: Claim | None = claim
        self._until = time.monotonic() + GOING_ON_SECONDS
        self._order = RoundRobin()

    def facts(self) -> dict[str, Any]:
        """For the log."""
        now = self._claim
        return {"id": str(now.id), "job": now.job, "epoch": now.epoch} if now else {"id": ""}

    def go_on(self) -> None:
        """Slices of what is due, one after the other, until nothing is, the worker drains or it is time for a message,
        by which the process shows that it is there.
        """
        self._claim = None
        can = claimable.claimable() if self._may() else None
        while can and self._may():
            looks = self._order.next(lambda: self._run(can), self._job)
            if not any(look() for look in looks):
                return

    def _may(self) -> bool:
        return time.monotonic() < self._until and not self._state.draining()

    def _run(self, can: Claimable) -> bool:
        lease = leases.begin_next(worker=self._state.worker, only=can)
        if lease is not None:
            self._claim = Claim(lease.id, lease.epoch)
            loop.run_begun_slice(lease, draining=self._state.draining)
            self._claim = None
        return lease is not None

    def _job(self) -> bool:
        found = job_queue.claim(worker=self._state.worker, limit=1)
        self._order.jobs_seen(found=bool(found))
        for claim in found:
            self._claim = claim
            kinds.run_job(claim.id, claim.epoch, draining=self._state.draining)
            self._claim = None
        return bool(found)
