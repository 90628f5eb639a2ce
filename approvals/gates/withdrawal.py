"""Withdrawing what a run asks of people: when it is cancelled, leaves a line, or ends by a rejected patch.

Asks nobody's rights.
"""

from collections.abc import Sequence
from uuid import UUID

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.event_log import NewEvent
from checkpoints.models import RunEvent


def withdraw_requests(run_id: UUID) -> list[NewEvent]:
    """Close the open requests of the run, in order of id, under its lock. Gives one line for each.

    A request that was settled stays so: what people decided is on record, though nothing applies it any more.
    """
    rows = _of(run_id, RequestStatus.OPEN)
    mark_withdrawn(rows)
    return withdrawn_events(rows)


def leave_requests(run_id: UUID) -> list[NewEvent]:
    """As `withdraw_requests`, where the run leaves its line: what was settled there and not applied never will be."""
    rows = _of(run_id, RequestStatus.OPEN, RequestStatus.SETTLED)
    ApprovalRequest.objects.filter(id__in=[row.id for row in rows]).update(status=RequestStatus.WITHDRAWN)
    return withdrawn_events(rows)


def _of(run_id: UUID, *statuses: str) -> list[ApprovalRequest]:
    found = ApprovalRequest.objects.filter(run=run_id, status__in=statuses).order_by("id")
    return list(found.select_for_update())


def mark_withdrawn(rows: Sequence[ApprovalRequest]) -> None:
    """Close these requests, as far as they are open, in the caller's transaction."""
    if rows:
        still = ApprovalRequest.objects.filter(id__in=[row.id for row in rows], status=RequestStatus.OPEN)
        still.update(status=RequestStatus.WITHDRAWN)


def withdrawn_events(rows: Sequence[ApprovalRequest]) -> list[NewEvent]:
    """The lines that say that these requests were withdrawn."""
    return [NewEvent("request_withdrawn", {"request": str(row.id)}, node=row.node, task=row.task) for row in rows]


def who_asked(run_id: UUID) -> str:
    """The name of the person who asked to cancel the run; empty for the system."""
    asked = RunEvent.objects.filter(run=run_id, type="cancel_requested").order_by("-seq")
    return asked.values_list("actor", flat=True).first() or ""
