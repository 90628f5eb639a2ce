"""A re-opening that meets a signature, where whoever has the run's lock first wins; and
one that meets the run's worker, which goes on with what is asked then.
"""

import random

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.engine.errors import CountersignError
from orchestrator.runs.reopenings import reopen
from tests.races.meeting import TRIALS, meet, whole, work
from tests.support import cast, run_actions
from tests.support.deadlines import gated, paused_run
from tests.support.run_actions import pending, request

pytestmark = pytest.mark.django_db(transaction=True)


def test_either_a_signature_or_a_concurrent_re_opening_stands(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    chance = random.Random(11)
    for _ in range(TRIALS):
        run = paused_run(deadline=None)
        registry.replace(gated("with-deadline", deadline=None, quorum=2))
        open_request = request(run)
        items = [
            {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
            for row in pending(run)
        ]

        def decide(run: Run = run, items: list[dict[str, str]] = items) -> bool:
            try:
                run_actions.reviews.sign(run.id, items, by=rita)
            except CountersignError:
                return False
            return True

        def anew(asked: ApprovalRequest = open_request) -> bool:
            try:
                reopen(asked.id, by=people.steward, reason="stricter now")
            except CountersignError:
                return False
            return True

        has_signed, has_reopened = meet(chance, decide, anew)
        assert has_signed != has_reopened
        statuses = ApprovalRequest.objects.filter(run=run).order_by("ordinal")
        expected = ["withdrawn", "open"] if has_reopened else ["settled"]
        assert list(statuses.values_list("status", flat=True)) == expected
        assert Decision.objects.filter(run=run.id).count() == 2 * has_signed
        whole(Run.objects.get(id=run.id))


def test_a_re_opening_that_meets_the_worker_leaves_the_run_waiting(
    people: cast.People,
) -> None:
    chance = random.Random(12)
    for _ in range(TRIALS):
        run = paused_run(deadline=None)
        registry.replace(gated("with-deadline", deadline=None, quorum=2))
        open_request = request(run)
        Run.objects.filter(id=run.id).update(status="failed")
        runs.resume(run.id, by=people.steward)

        def slice_of_run(run: Run = run) -> None:
            work(run)

        def anew(asked: ApprovalRequest = open_request) -> bool:
            reopen(asked.id, by=people.steward, reason="stricter now")
            return True

        _, has_reopened = meet(chance, slice_of_run, anew, apart=0.02)
        work(run)
        run.refresh_from_db()
        assert (run.status, has_reopened) == ("paused", True), run.error_code
        whole(run)
