"""The rows of reviewers: the principals that may decide a request, as lists find them."""

from collections.abc import Iterable

from approvals.models import ApprovalRequest, RequestReviewer


def reviewer_rows(
    request: ApprovalRequest, principals: Iterable[str], *, status: str
) -> list[RequestReviewer]:
    """Return an unsaved row for each of these principals of an open request, in a run
    of this status.
    """
    rows: list[RequestReviewer] = []
    for principal in principals:
        # The columns that triggers also fill: without the triggers, no new request may
        # be hidden.
        row = RequestReviewer(
            request=request,
            principal=principal,
            run=request.run_id,
            run_graph=request.graph,
            run_status=status,
            graph=request.graph,
            opened_at=request.opened_at,
            deadline=request.deadline,
            waits=True,
        )
        rows.append(row)
    return rows
