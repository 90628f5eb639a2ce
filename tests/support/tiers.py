"""Tiers that have come."""

from datetime import datetime, timedelta

from django.utils import timezone

from approvals.gates.deadline_jobs import TIER_KIND
from approvals.models import ApprovalRequest
from approvals.silence import tiers
from checkpoints.models import Job, Run
from orchestrator.jobs.kinds import advance
from tests.support.forging import rewrite

HOUR = timedelta(hours=1)
LEADS = "group:leads"
ONE_OF_EACH = [(HOUR, "remind", None), (2 * HOUR, "escalate", [LEADS])]


def let_tiers_come(run: Run, *, by: timedelta = timedelta()) -> datetime:
    """Move the next tiers of a run's open requests, and their jobs, to a minute ago, and
    further by so much.
    """
    past = timezone.now() - timedelta(minutes=1) - by
    for row in ApprovalRequest.objects.filter(run=run, status="open"):
        if row.tier_at is not None:
            rewrite(row, tier_at=past)
    Job.objects.filter(run=run.id, kind=TIER_KIND).update(due_at=past)
    return past


def meet_tiers(run: Run) -> bool:
    """Let the tiers of a run's only open request act, without their job."""
    request = ApprovalRequest.objects.get(run=run, status="open")
    return tiers.meet_tiers(run.id, request.id)


def work_off_tiers(run: Run) -> list[Job]:
    """Let the jobs of a run's tiers work as far as they are due."""
    ids = Job.objects.filter(run=run.id, kind=TIER_KIND).order_by("created_at", "id")
    return [advance(job) for job in ids.values_list("id", flat=True)]
