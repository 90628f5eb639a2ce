"""What people are shown of a run, and what acts later, forged by SQL: verification
names it.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from approvals.models import ApprovalRequest
from checkpoints.models import Run, TaskResult
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import api_graphs, cast
from tests.support import full_installation as full
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


def _named(run: Run, table: str) -> bool:
    return any(fault.table == table for fault in verify_run(run.id))


@pytest.fixture
def full_run(tmp_path: Path, people: cast.People) -> Run:
    return full.a_full_run(tmp_path, people.reviewer)


@pytest.mark.parametrize(
    "column",
    [
        "label",
        "facts",
        "parent_run",
        "parent_line",
        "parent_task",
        "started_at",
        "ended_at",
        "cancel_at",
    ],
)
def test_a_forged_column_of_a_run_is_named(column: str, full_run: Run) -> None:
    assert verify_run(full_run.id) == []
    now = timezone.now()
    forged: dict[str, Any] = {
        "label": "Approved by the board",
        "facts": {"amount": "1.00"},
        "parent_run": uuid4(),
        "parent_line": 2,
        "parent_task": "node:1:0",
        "started_at": now - DAY,
        "ended_at": now - DAY,
        "cancel_at": now,
    }
    tamper(full_run, **{column: forged[column]})
    assert _named(full_run, "checkpoints_run")


@pytest.fixture
def failed(people: cast.People) -> Run:
    api_graphs.register()
    api_graphs.broken.add("fetch")
    run = runs.advance(runs.start("gated", {"claim_id": "C"}, by=people.starter).id)
    assert run.status == "failed"
    assert verify_run(run.id) == []
    return run


def test_another_reason_why_a_run_stopped_is_named(failed: Run) -> None:
    tamper(failed, error=pack_json({"code": "node_failed", "message": "all is well"}))
    assert _named(failed, "checkpoints_run")


def test_another_code_is_named(failed: Run) -> None:
    tamper(failed, error_code="poison")
    assert _named(failed, "checkpoints_run")


def test_a_run_that_was_cancelled_does_not_lose_that_and_no_time_can_be_moved(
    failed: Run, people: cast.People
) -> None:
    run = runs.cancel(failed.id, by=people.starter, reason="no more")
    assert run.status == "cancelled"
    assert verify_run(run.id) == []
    for columns in (
        {"cancel_at": None},
        {"cancel_at": timezone.now() + DAY},
        {"ended_at": timezone.now() + DAY},
    ):
        was = Run.objects.filter(id=run.id).values(*columns).get()
        tamper(run, **columns)
        assert _named(run, "checkpoints_run"), columns
        tamper(run, **was)
    assert verify_run(run.id) == []


def test_a_deadline_that_is_moved_is_named(people: cast.People) -> None:
    api_graphs.register()
    run = runs.advance(runs.start("gated", {"claim_id": "C"}, by=people.starter).id)
    tamper(ApprovalRequest.objects.get(run=run.id), deadline=timezone.now())
    assert _named(run, "approvals_approvalrequest")


def test_a_thread_that_is_said_to_have_ended_is_named(full_run: Run) -> None:
    row = TaskResult.objects.filter(run=full_run.id)[0]
    tamper(row, thread_ended_at=timezone.now() + DAY)
    assert _named(full_run, "checkpoints_taskresult")
