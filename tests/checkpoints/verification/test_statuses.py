"""A run or a request that was put under a status by SQL is named."""

from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Graph
from tests.support import api_graphs, forging
from tests.support.cast import People
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "status", ["waiting", "failed", "unknown", "incompatible", "asleep", "running"]
)
def test_a_paused_run_that_was_parked_under_another_status_is_named(
    status: str, people: People
) -> None:
    run = _paused(people)
    forging.tamper(run, status=status)
    assert any(fault.table == "checkpoints_run" for fault in verify_run(run.id))


@pytest.mark.parametrize(
    "status", ["asleep", "withdrawn", "applied", "settled", "expired"]
)
def test_a_request_under_a_status_that_is_none_or_another_is_named(
    status: str, people: People
) -> None:
    run = _paused(people)
    forging.tamper(ApprovalRequest.objects.get(run=run.id), status=status)
    assert any(
        fault.table == "approvals_approvalrequest" for fault in verify_run(run.id)
    )


def _paused(people: People) -> Run:
    api_graphs.register()
    run = runs.advance(runs.start("gated", {"claim_id": "C"}, by=people.starter).id)
    assert verify_run(run.id) == []
    return run


def test_a_queued_run_that_was_put_off_is_named() -> None:
    run = started(graph_of_one_node())
    lease = held(run)
    leases.give_back(run.id, lease.epoch)
    assert verify_run(run.id) == []
    Run.objects.filter(id=run.id).update(due_at=timezone.now() + timedelta(days=3000))
    assert "which nobody said" in verify_run(run.id)[0].reason


def test_a_run_that_is_to_begin_later_is_sound() -> None:
    run = started(graph_of_one_node())
    Run.objects.filter(id=run.id).update(due_at=timezone.now() + timedelta(days=30))
    assert verify_run(run.id) == []


def graph_of_one_node() -> Graph:
    flow = graph("put-off")
    flow.node("work")(lambda state, ctx: {"notes": ["work"]})
    flow.edge(START, "work")
    flow.edge("work", END)
    return flow
