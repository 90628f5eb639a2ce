"""A review of a thousand writes is decided in one call, with few statements."""

from typing import Any

import pytest

from approvals import reviews
from approvals.models import Decision
from checkpoints.core.status import Status
from orchestrator import runs
from tests.support import claims, run_actions
from tests.support.cast import People
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
WRITES = 1_000
STATEMENTS_A_HUNDRED = 10


def test_a_thousand_writes_are_decided_in_one_call_in_under_ten_statements_a_hundred(
    people: People,
) -> None:
    with claims.registered(claims.many_writes("thousand", WRITES)):
        run = claims.paused("CLM-1000", people.starter, graph="thousand")
        rows = run_actions.pending(run)
        items: list[dict[str, Any]] = []
        for number, row in enumerate(rows):
            verdict = "reject" if number % 10 == 0 else "approve"
            items.append(
                {"write": str(row.write), "hash": row.hash, "verdict": verdict}
            )
        with counted() as sent:
            receipt = reviews.sign(run.id, items, by=people.reviewer)
        print(f"{len(sent)} statements for {WRITES} decisions")
        assert len(sent) < STATEMENTS_A_HUNDRED * WRITES // 100
        assert len(receipt.lines) == WRITES
        assert Decision.objects.filter(run=run.id).count() == WRITES
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert len(run_actions.state(run)["notes"]) == WRITES - WRITES // 10


def test_the_statements_of_a_signing_do_not_grow_with_its_writes(
    people: People,
) -> None:
    sent_of: list[int] = []
    for count in (50, 100, 200):
        name = f"writes_{count}"
        with claims.registered(claims.many_writes(name, count)):
            run = claims.paused(f"CLM-{count}", people.starter, graph=name)
            items = [
                {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
                for row in run_actions.pending(run)
            ]
            with counted() as sent:
                reviews.sign(run.id, items, by=people.reviewer)
            sent_of.append(len(sent))
    # The first of them has also compiled the queries that a process keeps.
    assert sent_of[1] == sent_of[2]


@pytest.fixture
def folded(people: People) -> None:
    """Nothing: the page of a large review is drawn in the test."""
