"""A re-opening that commits in the middle of what somebody else reads."""

from typing import Any
from uuid import UUID

import pytest

from approvals.gates import request_state
from approvals.models import ApprovalRequest
from checkpoints.models import PendingWrite, Run
from orchestrator.runs.reopenings import reopen


def reopen_between_reads(
    monkeypatch: pytest.MonkeyPatch, run: Run, *, by: Any
) -> list[ApprovalRequest]:
    """Re-open the open request of a run when its state is read next, after its row and
    before its writes. Returns a list that then has the new request.
    """
    reader: Any = request_state.pending_writes
    of_tasks = reader.of_tasks
    opened: list[ApprovalRequest] = []

    def read(run_id: UUID, line: int, visits: Any) -> list[PendingWrite]:
        monkeypatch.setattr(reader, "of_tasks", of_tasks)
        request = ApprovalRequest.objects.get(run=run, status="open")
        opened.append(reopen(request.id, by=by, reason="stricter now"))
        rows: list[PendingWrite] = of_tasks(run_id, line, visits)
        return rows

    monkeypatch.setattr(reader, "of_tasks", read)
    return opened
