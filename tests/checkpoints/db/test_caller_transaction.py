"""Nothing that runs nodes begins inside a transaction of its caller; what a test's own
transaction wraps may.
"""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from checkpoints.models import Job, Run, TaskResult
from checkpoints.queue import jobs as job_queue
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import OpenTransaction
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker.poll import look
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import graph, registered, started

PAID: list[str] = []


@pytest.fixture
def payment() -> Run:
    """A run that pays outside, not begun."""
    PAID.clear()
    flow = graph("paid-in-a-transaction")

    @flow.node(effect="external")
    def pay(state: Any, ctx: Any) -> None:
        PAID.append(ctx.idempotency_key)

    flow.edge(START, "pay")
    flow.edge("pay", END)
    return started(registered(flow))


def _slice(run: Run) -> None:
    loop.run_slice(run.id, run.epoch)


def _begun_slice(run: Run) -> None:
    claim = leases.claim_one(run.id)
    lease = leases.begin_lease(run.id, claim.epoch) if claim else None
    assert lease is not None
    loop.run_begun_slice(lease)


VERBS: dict[str, Callable[[Run], Any]] = {
    "runs.advance": lambda run: runs.advance(run.id),
    "run_slice": _slice,
    "run_begun_slice": _begun_slice,
    "look": lambda run: look(),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", VERBS)
def test_no_node_runs_in_a_transaction_that_its_caller_may_roll_back(
    verb: str, payment: Run
) -> None:
    with (
        pytest.raises(OpenTransaction, match=f"^{verb} was called") as refused,
        transaction.atomic(),
    ):
        VERBS[verb](payment)
    assert refused.value.facts == {"verb": verb}
    assert "transaction.on_commit" in refused.value.message
    after = Run.objects.get(id=payment.id)
    assert after.status == "queued"
    assert after.epoch == 0
    assert PAID == []
    assert not TaskResult.objects.exists()
    runs.advance(payment.id)
    assert len(PAID) == 1


@pytest.mark.django_db(transaction=True)
def test_after_the_commit_of_the_caller_a_run_is_advanced(payment: Run) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: runs.advance(payment.id))
        assert PAID == []
    assert len(PAID) == 1


@pytest.mark.django_db(transaction=True)
def test_a_caller_who_commits_by_hand_is_inside_a_transaction_too(payment: Run) -> None:
    connection.set_autocommit(False)
    try:
        with pytest.raises(OpenTransaction):
            runs.advance(payment.id)
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert PAID == []


@pytest.mark.django_db(transaction=True)
def test_no_job_is_worked_on_in_a_transaction_that_its_caller_may_roll_back() -> None:
    job = job_queue.add_job("sweep_jobs")
    for work in (lambda: kinds.advance(job), lambda: kinds.run_job(job, 0)):
        with pytest.raises(OpenTransaction), transaction.atomic():
            work()
    assert list(Job.objects.values_list("status", "epoch")) == [("queued", 0)]


@pytest.mark.django_db(transaction=True)
def test_a_command_that_works_on_a_job_refuses_in_one_line_before_it_adds_one(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **ONE_KEY}
    with pytest.raises(CommandError, match="open_transaction"), transaction.atomic():
        call_command("rotate_keys", stdout=StringIO())
    assert not Job.objects.exists()
    with transaction.atomic():
        call_command("rotate_keys", job=True, stdout=StringIO())
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_the_transaction_around_a_test_does_not_count_and_one_inside_it_does(
    payment: Run,
) -> None:
    assert connection.in_atomic_block
    with pytest.raises(OpenTransaction), transaction.atomic():
        runs.advance(payment.id)
    assert runs.advance(payment.id).status == "completed"
    assert len(PAID) == 1
