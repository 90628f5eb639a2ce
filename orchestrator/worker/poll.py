"""One look at the queue from any process: for projects that let their own task queue carry the work.

Named in the settings of such a project: its doorbell puts `look` into its queue. Losing or doubling a look is harmless,
for the rows say what is due and each is claimed first.
"""

from checkpoints.queue import jobs, leases
from orchestrator.execution import loop as runner
from orchestrator.jobs import kinds
from orchestrator.worker import claimable as abilities

MOST = 100
"""Slices of one look, so that a task of a stock queue ends within its time."""


def look(most: int = MOST) -> int:
    """Take what is due, one slice after the other, until nothing is or `most` were worked on. Gives how many."""
    kinds.ensure_standing()
    can, done = abilities.claimable(), 0
    while done < most:
        hold = leases.begin_next(worker=None, only=can)
        if hold is not None:
            runner.work_on(hold)
        found = jobs.claim(worker=None, limit=1)
        for job_id, epoch in found:
            kinds.work(job_id, epoch)
        if hold is None and not found:
            break
        done += (hold is not None) + len(found)
    return done
