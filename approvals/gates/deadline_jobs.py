"""The jobs that meet deadlines: one for each request with a deadline, written in the
transaction that opens or reopens the request. `approvals.deadlines` does their work.
"""

from collections.abc import Iterable
from datetime import datetime

from approvals.models import ApprovalRequest
from checkpoints.queue import jobs

KIND = "meet_deadline"
"""The kind of these jobs. Their fact `request` is the id of the request."""


def add_deadline_jobs(
    requests: Iterable[ApprovalRequest], *, earliest: datetime | None = None
) -> None:
    """Queue a job for each of these requests that has a deadline, in the caller's
    transaction, due then or at `earliest` if that is later. A second job for a request
    does no harm: it finds nothing to decide.
    """
    added: list[jobs.RunJob] = []
    for request in requests:
        if request.deadline is not None:
            facts = {"request": str(request.id)}
            due_at = max(request.deadline, earliest or request.deadline)
            added.append(jobs.RunJob(request.run_id, due_at, facts))
    jobs.add_run_jobs(KIND, added)
