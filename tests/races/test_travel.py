"""Going back that meets a signature, a worker, or itself. Many trials, each at another
moment; one outcome each.
"""

import random

import pytest

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Checkpoint, RunLine
from orchestrator import runs
from orchestrator.engine.errors import CountersignError, WrongStatus
from tests.races.meeting import TRIALS, meet, whole, winner_of, work
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_signature_that_meets_a_rewind_counts_on_the_line_that_it_was_given_on_or_not_at_all(
    people: cast.People,
) -> None:
    chance = random.Random(9)
    rita = run_actions.reviewer(people.reviewer)
    counted = set()
    PAID.clear()
    for _ in range(TRIALS):
        run = advanced(claim("rewound_while_signed"))
        rows = run_actions.pending(run)
        decisions = [
            {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
            for row in rows
        ]
        met = meet(
            chance,
            lambda run=run, posted=decisions: reviews.sign(run.id, posted, by=rita),
            lambda run=run: runs.rewind(run.id, f"{run.key}:at-2", by=people.starter),
        )
        assert not isinstance(met[1], CountersignError)
        counted.add(not isinstance(met[0], CountersignError))
        run = runs.advance(run.id)
        statuses = {
            request.line: request.status
            for request in ApprovalRequest.objects.filter(run=run)
        }
        assert run.status == Status.PAUSED
        assert run.line == 2
        assert statuses[2] == "open"
        assert statuses[1] == "withdrawn"
        whole(run)
    assert PAID == [], "what was signed on a line that was left pays nothing"
    assert TRIALS < 30 or counted == {True, False}


def test_a_rewind_that_meets_a_worker_waits_its_turn_or_is_refused_and_no_line_loses_a_superstep(
    people: cast.People,
) -> None:
    chance = random.Random(9)
    refused = 0
    for _ in range(TRIALS):
        run = runs.start("loop_every", {})
        met = meet(
            chance,
            lambda run=run: work(run),
            lambda run=run: runs.rewind(
                run.id, f"{run.key}:initial", by=people.starter
            ),
            apart=0.05,
        )
        refused += isinstance(met[1], WrongStatus)
        run = runs.advance(run.id)
        assert run.status in ENDS
        assert run_actions.state(run)["total"] == run.superstep
        rows = Checkpoint.objects.filter(run=run, line=run.line).order_by("seq")
        assert [row.superstep for row in rows] == list(range(run.superstep + 1))
        assert RunLine.objects.filter(run=run).count() == run.line - 1
        whole(run)
    assert refused < TRIALS


def test_only_one_of_two_rewinds_from_the_same_view_is_done(
    people: cast.People,
) -> None:
    chance = random.Random(9)
    for _ in range(TRIALS):
        run = advanced(claim("rewound_twice"))
        met = meet(
            chance,
            *(
                lambda run=run, at=at: runs.rewind(
                    run.id, f"{run.key}:at-{at}", seen_line=1, by=people.starter
                )
                for at in (1, 2)
            ),
        )
        at = (1, 2)[winner_of(met)]
        row = RunLine.objects.get(run=run)
        assert row.number == 2
        assert row.departure_seq == at
        run = runs.advance(run.id)
        assert run.line == 2
        assert run.status == Status.PAUSED
        whole(run)
