"""The rows for which floor 2 needs a run's checkpoints when retention removes some.
`checkpoints.retention.kept_points` uses the query, which is correlated with the row of
a checkpoint.
"""

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.status import ENDS
from checkpoints.models import RunLine, TaskResult
from checkpoints.models.task_result import Outcome

_UNDECIDED = (RequestStatus.OPEN, RequestStatus.SETTLED)
_RUNNING_OUTCOMES = ("approved", "partial")
"""Outcomes after which a call runs."""


def points_of_calls() -> "QuerySet[Any]":
    """Return the requests that need a checkpoint: an undecided one was prepared from
    its state, and an approved call reads that state when it runs.
    """
    has_run = Exists(
        TaskResult.objects.filter(
            outcome=Outcome.DONE,
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
    # A line that departed after the approval may have yet to run it.
    departed = Exists(
        RunLine.objects.filter(
            departure_run=OuterRef("run_id"), parent_line=OuterRef("line")
        ).exclude(run__status__in=ENDS)
    )
    call_will_run |= approved_call & Q(departed)
    # A fork that goes on with a proposal opens a request anew, which still names the
    # checkpoint of its origin.
    requests = ApprovalRequest.objects.filter(prepared_from=OuterRef("id"))
    needing: QuerySet[Any] = requests.filter(Q(status__in=_UNDECIDED) | call_will_run)
    return needing
