"""The faults of deadlines, for the examiner of approvals: decisions that no deadline can
have made, and deadlines that nothing would meet.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from approvals.gates.deadline_jobs import KIND, TIER_KIND, is_job_of, moment_of
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db.clock import read_now
from checkpoints.models import PendingWrite, Run
from checkpoints.models.job import LIVE, Job, JobStatus
from checkpoints.queue import jobs
from checkpoints.verification import DEADLINE_UNMET, Fault, Subject

LATEST = timedelta(hours=1)
"""How long after the deadline, or after now if it has passed, its job may be due: pauses
between attempts are shorter.
"""
_STOPPED = (JobStatus.FAILED, JobStatus.CANCELLED)


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
        if not _can_be(decision, state):
            reason = "is that of a deadline, but the request has no such deadline"
            return subject.fault(decision, reason)
    return None


def was_approved(
    state: RequestState,
    row: PendingWrite | Decision,
) -> bool:
    """Return whether a deadline has approved this revision of a write: where that is still
    open, or decided again, a veto kept it open.
    """
    for decision in state.decisions:
        is_approval = decision.by_deadline and decision.verdict == "approve"
        is_same = (decision.write, decision.revision) == (row.write, row.revision)
        if is_approval and is_same and decision is not row:
            return True
    return False


def _can_be(
    decision: Decision,
    state: RequestState,
) -> bool:
    request = state.request
    if request.deadline is None:
        return False
    if decision.at < request.deadline:
        return False
    verdict = verdict_of_deadline(request, decision.position)
    if decision.verdict == "reject" and was_approved(state, decision):
        return True
    return bool(verdict == decision.verdict)


def verdict_of_deadline(request: ApprovalRequest, position: int) -> str:
    """Return the verdict of a request's deadline on an open write: silence answers no
    question.
    """
    verdict = str(request.policy.get("on_deadline", ""))
    is_asked = position in request.policy.get("asks", ())
    return "reject" if verdict == "approve" and is_asked else verdict


def unmet_deadline(
    subject: Subject,
    row: ApprovalRequest,
) -> Fault | None:
    """Return the fault of an open request whose deadline no job would meet. One query
    for a request with a deadline.
    """
    return _unmet(subject, row, KIND, "deadline")


def unmet_tier(
    subject: Subject,
    row: ApprovalRequest,
) -> Fault | None:
    """Return the fault of an open request whose next tier no job would meet. One query
    for a request with a tier to come.
    """
    # A deadline that has come decides instead.
    if row.deadline is not None and row.deadline <= read_now():
        return None
    return _unmet(subject, row, TIER_KIND, "tier")


def _unmet(
    subject: Subject, row: ApprovalRequest, kind: str, name: str
) -> Fault | None:
    """Return the fault of an open request whose moment of this kind no job would meet."""
    moment = moment_of(kind, row)
    if moment is None or not _is_open(subject.run, row):
        return None
    jobs_of_run = Job.objects.filter(run=subject.run.id, kind=kind)
    every_job = jobs_of_run.order_by("created_at", "id")
    own_jobs = [job for job in every_job if is_job_of(job, row)]
    # A job that is tried again after its deadline is due a while from now.
    latest = max(moment, read_now()) + LATEST
    if any(_will_meet(job, latest) for job in own_jobs):
        return None
    stopped = [job for job in own_jobs if job.status in _STOPPED]
    if stopped:
        return _stopped_job(subject, row, stopped[-1], name)
    return subject.fault(row, f"has a {name}, but no job that would meet it")


def _is_open(run: Run, row: ApprovalRequest) -> bool:
    """Return whether people may decide the request."""
    # A stopped run gets new jobs when it goes on; nobody here is asked about others.
    if run.imported or run.cancel_at or run.status in CLOSED_TO_DECISIONS:
        return False
    return bool(row.status == RequestStatus.OPEN)


def _will_meet(job: Job, latest: datetime) -> bool:
    """Return whether a job will act by this time, or waits for the steward who paused
    it.
    """
    return job.status in LIVE and (jobs.is_paused(job) or job.due_at <= latest)


def _stopped_job(subject: Subject, row: ApprovalRequest, job: Job, name: str) -> Fault:
    """Return the fault of a request whose job was ended by a person or by errors: all
    rows are as they were written, but nothing meets the moment.
    """
    reason = f"has a {name} that nothing will meet, for its job was {job.status}"
    if job.status == JobStatus.FAILED:
        reason = f"has a {name} that nothing will meet, for its job {job.status}"
    if job.error_code:
        reason = f"{reason} with the error {job.error_code}"
    return replace(subject.fault(row, reason), code=DEADLINE_UNMET)
