"""The rows for which floor 2 needs a run's checkpoints when retention removes some.
`checkpoints.retention.kept_points` uses the query, which is correlated with the row of
a checkpoint.
"""

from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.status import ENDS
from checkpoints.models import Checkpoint, RunLine, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.models.task_result import Outcome

_UNDECIDED = (RequestStatus.OPEN, RequestStatus.SETTLED)
_RUNNING_OUTCOMES = ("approved", "partial")
"""Outcomes after which a call runs."""


def points_of_calls() -> "QuerySet[Any]":
    """Return the requests that need a checkpoint: an undecided one was prepared from
    its state, and an approved call reads that state when it runs.
    """
    # Until a checkpoint lists its result, a resume compares what the call was given.
    has_run = Exists(
        TaskResult.objects.filter(
            outcome=Outcome.DONE,
            seq__isnull=False,
            run_id=OuterRef("run_id"),
            line=OuterRef("line"),
            node=OuterRef("node"),
            visit=OuterRef("visit"),
            index=OuterRef("index"),
        )
    )
    approved_call = Q(
        status=RequestStatus.APPLIED, kind="call", outcome__in=_RUNNING_OUTCOMES
    )
    call_will_run = approved_call & ~Q(run__status__in=ENDS) & ~Q(has_run)
    call_will_run |= approved_call & Q(Exists(_departed_lines()))
    call_will_run |= approved_call & Q(Exists(_store_forks()))
    # A request that its deadline closed is reopened when the run is resumed.
    asked_again = Q(status=RequestStatus.EXPIRED, line=F("run__line"))
    asked_again &= ~Q(run__status__in=ENDS)
    # A fork that goes on with a proposal opens a request again, which still names the
    # checkpoint of its origin.
    requests = ApprovalRequest.objects.filter(prepared_from=OuterRef("id"))
    needing: QuerySet[Any] = requests.filter(
        Q(status__in=_UNDECIDED) | call_will_run | asked_again
    )
    return needing


def _departed_lines() -> "QuerySet[RunLine]":
    """Return the lines that departed from the line of an approved call, and may have
    yet to run it: they have not ended, or forks departed from them in turn.
    """
    departed = RunLine.objects.filter(
        departure_run=OuterRef("run_id"), parent_line=OuterRef("line")
    )
    # How those ended is not looked up: a chain of forks may be of any length.
    further = RunLine.objects.filter(departure_run=OuterRef("run_id"), number=1)
    return departed.filter(~Q(run__status__in=ENDS) | Q(Exists(further)))


def _store_forks() -> "QuerySet[Checkpoint]":
    """Return the checkpoints on the line of an approved call from which a store made a
    fork that has no line before it is resumed.
    """
    lines = RunLine.objects.filter(run=OuterRef("run_id"))
    forks = Checkpoint.objects.filter(source=Source.FORK).exclude(Exists(lines))
    return Checkpoint.objects.filter(
        run=OuterRef("run_id"), line=OuterRef("line"), id__in=forks.values("parent")
    )
