"""One look at the queue from any process, for projects whose own task queue carries the
work.

The settings of such a project name it, and its doorbell puts `look` into its queue.
Losing or repeating a look is harmless, because the rows hold what is due and each is
claimed first.
"""

from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.queue import jobs, leases
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker import claimable

MOST = 100
"""The most slices of one look, so that a task of a stock queue ends within its time."""


def look(most: int = MOST) -> int:
    """Run slices of what is due, one after another, until nothing is or `most` were
    run. Return how many. Raises `OpenTransaction` inside a transaction of the caller,
    before anything is claimed.
    """
    refuse_open_transaction("look")
    kinds.ensure_standing()
    claimable_here = claimable.claimable()
    done = 0
    while done < most:
        # One of each in turn, so that neither runs nor jobs wait for all of the others.
        lease = leases.begin_next(worker=None, only=claimable_here)
        if lease is not None:
            loop.run_begun_slice(lease)
        claimed = jobs.claim(worker=None, limit=1)
        for claim in claimed:
            kinds.run_job(claim.id, claim.epoch)
        if lease is None and not claimed:
            break
        done += (lease is not None) + len(claimed)
    return done
