"""A run or a request that was put under a status by SQL is named."""

import pytest

from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import api_graphs, forging
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("status", ["waiting", "failed", "unknown", "incompatible", "asleep", "running"])
def test_a_paused_run_that_was_parked_under_another_status_is_named(status: str, people: People) -> None:
    run = _paused(people)
    forging.tamper(run, status=status)
    assert any(fault.table == "checkpoints_run" for fault in verify_run(run.id))


@pytest.mark.parametrize("status", ["asleep", "withdrawn", "applied", "settled", "expired"])
def test_a_request_under_a_status_that_is_none_or_another_is_named(status: str, people: People) -> None:
    run = _paused(people)
    forging.tamper(ApprovalRequest.objects.get(run=run.id), status=status)
    assert any(fault.table == "approvals_approvalrequest" for fault in verify_run(run.id))


def _paused(people: People) -> Run:
    api_graphs.register()
    run = runs.advance(runs.start("gated", {"claim_id": "C"}, by=people.starter).id)
    assert verify_run(run.id) == []
    return run
