"""The faults of deadlines, for the examiner of approvals: decisions that no deadline can
have made, and deadlines that nothing would meet.
"""

from datetime import datetime, timedelta

from approvals.gates.deadline_jobs import KIND
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db.clock import read_now
from checkpoints.models.job import LIVE, Job
from checkpoints.queue import job_seals, jobs
from checkpoints.verification import Fault, Subject
from orchestrator.engine.errors import CountersignError

LATEST = timedelta(hours=1)
"""How long after the deadline, or after now if it has passed, its job may be due: pauses
between attempts are shorter.
"""


def wrong_decision(
    subject: Subject,
    state: RequestState,
) -> Fault | None:
    """Return the fault of the first decision of a deadline that the request does not
    have, that had not come, or that decides otherwise.
    """
    for decision in state.decisions:
        if not decision.by_deadline:
            continue
        if not _can_be(decision, state.request):
            reason = "is that of a deadline, but the request has no such deadline"
            return subject.fault(decision, reason)
    return None


def _can_be(
    decision: Decision,
    request: ApprovalRequest,
) -> bool:
    if request.deadline is None:
        return False
    if decision.at < request.deadline:
        return False
    verdict = request.policy.get("on_deadline")
    return bool(verdict == decision.verdict)


def unmet_deadline(
    subject: Subject,
    row: ApprovalRequest,
) -> Fault | None:
    """Return the fault of an open request whose deadline no job would meet. One query
    for a request with a deadline.
    """
    run = subject.run
    # A stopped run gets new jobs when it goes on; nobody here is asked about others.
    if run.imported or run.cancel_at or run.status in CLOSED_TO_DECISIONS:
        return None
    if row.deadline is None or row.status != RequestStatus.OPEN:
        return None
    live = Job.objects.filter(run=run.id, kind=KIND, status__in=LIVE)
    # A job that is tried again after its deadline is due a while from now.
    latest = max(row.deadline, read_now()) + LATEST
    if any(_meets(job, row, latest) for job in live):
        return None
    return subject.fault(row, "has a deadline, but no job that would meet it")


def _meets(
    job: Job,
    row: ApprovalRequest,
    latest: datetime,
) -> bool:
    """Return whether a job is that of the request's deadline, and due in time."""
    if job.facts.get("request") != str(row.id):
        return False
    try:
        job_seals.require_sound(job)
    except CountersignError:
        return False
    # A steward may have paused it.
    return jobs.is_paused(job) or job.due_at <= latest
