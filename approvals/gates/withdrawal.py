"""Withdrawing what a run asks of people: when it is cancelled, leaves a line, or ends
by a rejected patch.

Checks nobody's rights.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.db import query_cache
from checkpoints.event_log import NewEvent
from checkpoints.models import RunEvent


def withdraw_requests(run_id: UUID) -> list[NewEvent]:
    """Close the open requests of the run, in order of id, under its lock. Return one
    event for each.

    A request that was settled stays settled: what people decided is on record, even
    though it will never be applied.
    """
    rows = query_cache.select_locked(ApprovalRequest, _query_open, run_id)
    mark_withdrawn(rows)
    return withdrawn_events(rows)


def leave_requests(run_id: UUID) -> list[NewEvent]:
    """Close the open and the settled requests of a run that leaves its line: what was
    settled there and not applied never will be. Return one event for each.
    """
    rows = query_cache.select_locked(ApprovalRequest, _query_not_applied, run_id)
    if not rows:
        return []
    # `mark_withdrawn` would leave the settled ones as they are.
    ApprovalRequest.objects.filter(id__in=[row.id for row in rows]).update(
        status=RequestStatus.WITHDRAWN
    )
    return withdrawn_events(rows)


def _query_open(run: UUID) -> "QuerySet[ApprovalRequest]":
    return _locked_requests(run, RequestStatus.OPEN)


def _query_not_applied(run: UUID) -> "QuerySet[ApprovalRequest]":
    return _locked_requests(run, RequestStatus.OPEN, RequestStatus.SETTLED)


def _locked_requests(run: UUID, *statuses: str) -> "QuerySet[ApprovalRequest]":
    """Build the query for the run's requests of these statuses, locked, in order of
    id.
    """
    requests = ApprovalRequest.objects.filter(run=run, status__in=statuses)
    return requests.order_by("id").select_for_update()


def mark_withdrawn(rows: Sequence[ApprovalRequest]) -> None:
    """Close those of these requests that are open, in the caller's transaction."""
    if not rows:
        return
    still_open = ApprovalRequest.objects.filter(
        id__in=[row.id for row in rows], status=RequestStatus.OPEN
    )
    still_open.update(status=RequestStatus.WITHDRAWN)


def withdrawn_events(rows: Sequence[ApprovalRequest]) -> list[NewEvent]:
    """Return the events that record that these requests were withdrawn."""
    events = []
    for row in rows:
        facts = {"request": str(row.id)}
        events.append(
            NewEvent("request_withdrawn", facts, node=row.node, task=row.task)
        )
    return events


def who_asked(run_id: UUID) -> str:
    """Return the name of the person who cancelled the run; empty for the system."""
    requests_to_cancel = RunEvent.objects.filter(
        run=run_id, type="cancel_requested"
    ).order_by("-seq")
    return requests_to_cancel.values_list("actor", flat=True).first() or ""
