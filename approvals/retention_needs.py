"""What floor 2 needs of a run when retention removes from it. `checkpoints.retention.kept_points` asks; each query is
correlated with the row of a checkpoint.
"""

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.status import ENDS
from checkpoints.models import TaskResult
from checkpoints.models.task_result import Outcome

_UNDECIDED = (RequestStatus.OPEN, RequestStatus.SETTLED)
_NOT_RUN = ("approved", "partial")
"""Outcomes behind which a call runs."""


def points_of_calls() -> "QuerySet[Any]":
    """The requests that a checkpoint is needed for: what is undecided was prepared from its state, and an approved call
    reads that state when it runs.
    """
    task = {name: OuterRef(name) for name in ("run_id", "line", "node", "visit", "index")}
    ran = Exists(TaskResult.objects.filter(outcome=Outcome.DONE, **task))
    going_on = Q(status=RequestStatus.APPLIED, kind="call", outcome__in=_NOT_RUN) & ~Q(run__status__in=ENDS) & ~Q(ran)
    # A fork that goes on with a proposal asks anew, and its request still names the checkpoint of its origin.
    rows = ApprovalRequest.objects.filter(prepared_from=OuterRef("id"))
    found: QuerySet[Any] = rows.filter(Q(status__in=_UNDECIDED) | going_on)
    return found


def requests_of() -> "QuerySet[Any]":
    """The requests of a checkpoint's run: they say what people saw."""
    return ApprovalRequest.objects.filter(run=OuterRef("run_id"))


def decisions_of() -> "QuerySet[Any]":
    """The decisions on a checkpoint's run, which stay for ever, with the row by which they are verified."""
    return Decision.objects.filter(run=OuterRef("run_id"))
