"""One look at the queue from any process: for projects that let their own task queue carry the work.

Named in the settings of such a project: its doorbell puts `look` into its queue. Losing or doubling a look is harmless,
for the rows say what is due and each is claimed first.
"""

from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.queue import jobs, leases
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker import claimable

MOST = 100
"""Slices of one look, so that a task of a stock queue ends within its time."""


def look(most: int = MOST) -> int:
    """Take what is due, one slice after the other, until nothing is or `most` were worked on. Gives how many. Raises
    `OpenTransaction` inside a transaction of the caller, before anything is claimed.
    """
    refuse_open_transaction("look")
    kinds.ensure_standing()
    can, done = claimable.claimable(), 0
    while done < most:
        lease = leases.begin_next(worker=None, only=can)
        if lease is not None:
            loop.run_begun_slice(lease)
        found = jobs.claim(worker=None, limit=1)
        for claim in found:
            kinds.run_job(claim.id, claim.epoch)
        if lease is None and not found:
            break
        done += (lease is not None) + len(found)
    return done
