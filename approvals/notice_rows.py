"""The notices that no trigger writes: those of acts that change no column which a
trigger could follow. Written in the transaction of the act, as the others are.
"""

from collections.abc import Sequence
from datetime import datetime

from approvals.list_columns import (
    CAME_BACK,
    EXPIRED,
    OPENED,
    RUN_EVENTS,
    SEND_NOTICES,
    SETTLED,
    STOPPED_RUN,
    TOGETHER_SECONDS,
    VALUES_ERASED,
    WITHDRAWN,
)
from approvals.models import ApprovalRequest, Notice, RequestComment
from checkpoints.queue import jobs

REMINDED = "request.reminded"
ESCALATED = "request.escalated"
REOPENED = "request.reopened"
COMMENTED = "request.commented"
OUTCOME_REPORTED = "request.outcome_reported"
"""The events of these notices."""
EVENTS = (
    OPENED,
    REMINDED,
    ESCALATED,
    CAME_BACK,
    REOPENED,
    COMMENTED,
    SETTLED,
    OUTCOME_REPORTED,
    EXPIRED,
    WITHDRAWN,
    STOPPED_RUN,
    *RUN_EVENTS,
    VALUES_ERASED,
)
"""The events of all notices."""


def write_notices(
    request: ApprovalRequest,
    events: Sequence[tuple[str, int | None]],
    *,
    at: datetime,
    outcome: str = "",
) -> None:
    """Write a notice of a request for each of these events, with the number of its tier
    if it is one of a tier, and wake the job that sends notices. `outcome` is what they
    say came of it.
    """
    rows: list[Notice] = []
    for event, tier in events:
        row = Notice(
            event=event,
            run=request.run_id,
            request=request.id,
            outcome=outcome,
            tier=tier,
            at=at,
        )
        rows.append(row)
    Notice.objects.bulk_create(rows)
    jobs.wake_named(SEND_NOTICES, due_in=TOGETHER_SECONDS)


def write_comment_notice(row: RequestComment) -> None:
    """Write the notice of a comment, and wake the job that sends notices."""
    Notice.objects.create(
        event=COMMENTED,
        run=row.run_id,
        request=row.request_id,
        comment=row.id,
        at=row.at,
    )
    jobs.wake_named(SEND_NOTICES, due_in=TOGETHER_SECONDS)
