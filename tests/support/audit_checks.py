"""Anchoring the heads of runs now, and the examination of all runs."""

from datetime import timedelta

from django.utils import timezone

from checkpoints.models import Job
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs


def anchor_heads() -> Job:
    """One turn of the standing job that anchors heads, though it is not due yet."""
    Job.objects.filter(kind="anchor_heads").update(
        due_at=timezone.now() - timedelta(minutes=1)
    )
    return kinds.advance(jobs.add_job("anchor_heads", name="anchor_heads"))


def all_reasons() -> list[str]:
    """The reasons of all faults, of all runs and of the audit log."""
    result = Verified()
    for _ in verify_runs(Wanted(), result, by=None):
        pass
    return [fault["reason"] for fault in result.bad]
