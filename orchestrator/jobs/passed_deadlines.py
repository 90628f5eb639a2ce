"""The jobs of deadlines, tiers and windows: what time does in one request while people
have not decided.
"""

from collections.abc import Iterator
from uuid import UUID

from approvals import deadlines
from approvals.answers import windows
from approvals.silence import tiers
from checkpoints.queue.jobs import JobLease, Step


def meet_job(lease: JobLease) -> Iterator[Step]:
    """Apply the deadline of the request that the job names. A second time it decides
    nothing more.
    """
    request = UUID(lease.facts["request"])
    if lease.run is not None:
        deadlines.meet_deadline(lease.run, request)
    yield Step(1, 1)


def meet_tier_job(lease: JobLease) -> Iterator[Step]:
    """Apply the due tiers of the request that the job names. A second time none of them
    acts again.
    """
    request = UUID(lease.facts["request"])
    if lease.run is not None:
        tiers.meet_tiers(lease.run, request)
    yield Step(1, 1)


def end_window_job(lease: JobLease) -> Iterator[Step]:
    """Wake the run of the request that the job names. Done twice it wakes it again."""
    request = UUID(lease.facts["request"])
    if lease.run is not None:
        windows.end_window(lease.run, request)
    yield Step(1, 1)
