"""Withdrawing what a run asks of people: when it is cancelled. Called under the run's lock; asks nobody's rights."""

from uuid import UUID

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.event_log import NewEvent
from checkpoints.models import RunEvent


def withdraw_requests(run_id: UUID) -> list[NewEvent]:
    """Close the open requests of the run, in order of id. Gives one line for each.

    A request that was settled stays so: what people decided is on record, though nothing applies it any more.
    """
    open_ = ApprovalRequest.objects.filter(run=run_id, status=RequestStatus.OPEN).order_by("id").select_for_update()
    rows = list(open_)
    ApprovalRequest.objects.filter(id__in=[row.id for row in rows]).update(status=RequestStatus.WITHDRAWN)
    return [NewEvent("request_withdrawn", {"request": str(row.id)}, node=row.node, task=row.task) for row in rows]


def who_asked(run_id: UUID) -> str:
    """The name of the person who asked to cancel the run; empty for the system."""
    asked = RunEvent.objects.filter(run=run_id, type="cancel_requested").order_by("-seq")
    return asked.values_list("actor", flat=True).first() or ""
