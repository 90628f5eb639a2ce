"""Work on a job in a command's own process, or wait for the worker that has it."""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from checkpoints.models import Job
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from orchestrator.jobs import kinds

LOOK_SECONDS = 0.5


def work_on(job: UUID, report: Callable[[str], Any]) -> Any:
    """Work on the job until it has ended, and report its progress. Returns its last
    place. Raises `CommandError` if it failed, was cancelled or is paused.
    """
    last_report = ""
    while True:
        # Without an epoch another worker has the job.
        epoch = jobs.claim_one(job)
        if epoch is None:
            time.sleep(LOOK_SECONDS)
        else:
            # One slice; another worker may claim the job for the next.
            kinds.run_job(job, epoch)

        row = Job.objects.get(id=job)
        text = f"{row.progress.get('done', 0)} of {row.progress.get('total', 0)}"
        if text != last_report:
            report(text)
            last_report = text
        if row.status not in LIVE or jobs.is_paused(row):
            break

    if jobs.is_paused(row):
        raise CommandError("somebody paused the job; it goes on from the admin")
    if row.status != "done":
        raise CommandError(f"the job is {row.status}: {row.error or 'cancelled'}")
    return row.progress.get("place")
