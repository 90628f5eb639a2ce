"""A commit that the database refuses applies nothing, and says so where people look."""

import pytest
from django.db import IntegrityError

from checkpoints.core.status import Status
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import run_error
from checkpoints.models import Checkpoint
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support.small_graphs import graph, started

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_save_that_the_database_refuses_fails_the_run_with_its_reason_and_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = graph("refused")
    flow.node("a")(lambda state, ctx: {"notes": ["a"]})
    flow.edge(START, "a")
    flow.edge("a", END)
    run = started(flow)
    taken = Checkpoint.objects.get(run=run)
    with monkeypatch.context() as patch:
        # The next row gets the id of a row that is there already.
        patch.setattr(ledger, "uuid7", lambda: taken.id)
        run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert run.error_code == "save_failed"
    error = run_error.stored_error(run)
    assert error is not None
    assert error["type"] == IntegrityError.__name__
    assert Checkpoint.objects.filter(run=run).count() == 1
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
