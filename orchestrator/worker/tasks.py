"""The functions that a worker process runs. A message names a run or a job and an
epoch; nothing else in it is trusted.

django-q2's worker calls these functions by their dotted names. After the run or job
that a message names, the slot continues with what is due next, because a message for
each of many short runs would cost as much as the runs.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from checkpoints.core import work_sums
from checkpoints.queue import jobs as job_queue
from checkpoints.queue import leases
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.queue import Claim
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker import claimable
from orchestrator.worker.round_robin import RoundRobin
from orchestrator.worker.shared_state import SharedState, installed_state

ADVANCE = "orchestrator.worker.tasks.advance"
WORK = "orchestrator.worker.tasks.work"
GOING_ON_SECONDS = 1.0
"""The time after a message in which a worker begins by itself what is due: short beside
the time that one slice may take.
"""

log = structlog.get_logger(__name__)


def advance(run_id: str, epoch: int) -> None:
    """Execute one slice of the run, if the claim still holds. Never raises: a lease
    that remains expires by itself.
    """
    claim = Claim(UUID(run_id), epoch)

    def run_slice(state: SharedState) -> None:
        loop.run_slice(claim.id, epoch, worker=state.worker, draining=state.draining)

    _in_slot(claim, run_slice)


def work(job_id: str, epoch: int) -> None:
    """Run one slice of a job, as `advance` does for a run."""
    claim = Claim(UUID(job_id), epoch, job=True)

    def run_job(state: SharedState) -> None:
        kinds.run_job(claim.id, epoch, draining=state.draining)

    _in_slot(claim, run_job)


def _in_slot(claim: Claim, act: Callable[[SharedState], None]) -> None:
    state = installed_state()
    # A message that came late finds its claim withdrawn, and changes nothing.
    if not state.slots.take(claim):
        return
    slot_work = _SlotWork(state, claim)
    if work_sums.installed is not None:
        work_sums.installed.use_row(state.slots.own_number())
        _count_claim(claim)
    try:
        act(state)
        slot_work.go_on()
    except Exception:
        work_sums.count("slices_failed")
        log.exception("slice_failed", **slot_work.facts())
    finally:
        state.slots.leave(claim)
        state.ring()


def _count_claim(claim: Claim) -> None:
    work_sums.count("jobs_claimed" if claim.job else "runs_claimed")


class _SlotWork:
    """A slot that this process has taken, and the claim in it; None while the process
    looks for the next one.
    """

    def __init__(self, state: SharedState, claim: Claim) -> None:
        self._state = state
        self._claim: Claim | None = claim
        self._until = time.monotonic() + GOING_ON_SECONDS
        self._order = RoundRobin()

    def facts(self) -> dict[str, Any]:
        """Return the facts of the claim for the log."""
        claim = self._claim
        if claim is None:
            return {"id": ""}
        return {"id": str(claim.id), "job": claim.job, "epoch": claim.epoch}

    def go_on(self) -> None:
        """Run slices one after another until nothing is due, the worker drains, or it
        is time for a message, which shows that the process is alive.
        """
        self._claim = None
        claimable_here = claimable.claimable() if self._may_continue() else None
        while claimable_here and self._may_continue():
            looks: list[Callable[[], bool]] = self._order.next(
                partial(self._run, claimable_here), self._job
            )
            # `any` stops at the first look that finds something: then the turns are
            # asked again.
            if not any(look() for look in looks):
                return

    def _may_continue(self) -> bool:
        return time.monotonic() < self._until and not self._state.draining()

    def _run(self, claimable_here: Claimable) -> bool:
        lease = leases.begin_next(worker=self._state.worker, only=claimable_here)
        if lease is not None:
            self._claim = Claim(lease.id, lease.epoch)
            if work_sums.installed is not None:
                _count_claim(self._claim)
            loop.run_begun_slice(lease, draining=self._state.draining)
            self._claim = None
        return lease is not None

    def _job(self) -> bool:
        claimed = job_queue.claim(worker=self._state.worker, limit=1)
        self._order.jobs_seen(any_due=bool(claimed))
        for claim in claimed:
            self._claim = claim
            _count_claim(claim)
            kinds.run_job(claim.id, claim.epoch, draining=self._state.draining)
            self._claim = None
        return bool(claimed)
