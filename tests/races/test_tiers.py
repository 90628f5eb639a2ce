"""A tier that meets a signature, and two workers that have the same tier: whoever has
the run's lock first wins, and a tier acts once.
"""

import random

import pytest

from approvals.silence import tiers
from checkpoints.models import Run
from orchestrator import runs
from tests.races.meeting import TRIALS, meet, whole
from tests.support import cast, run_actions
from tests.support.deadlines import paused_run
from tests.support.run_actions import log, request, sign
from tests.support.tiers import HOUR, ONE_OF_EACH, let_tiers_come

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_tier_beside_a_concurrent_signature_has_its_line_or_does_nothing(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    chance = random.Random(9)
    for _ in range(TRIALS):
        run = paused_run(tiers=ONE_OF_EACH, deadline=None)
        let_tiers_come(run, by=5 * HOUR)
        open_request = request(run)

        def decide(run: Run = run) -> None:
            sign(run, rita, ["approve", "approve"])

        def pass_by(run: Run = run, asked: object = open_request.id) -> bool:
            return tiers.meet_tiers(run.id, asked)  # type: ignore[arg-type]

        _, has_acted = meet(chance, decide, pass_by)
        assert len(request(run).passed_tiers or ()) == (2 if has_acted else 0)
        run = runs.advance(run.id)
        assert run.status == "completed"
        whole(run)


def test_one_of_two_workers_lets_a_tier_act() -> None:
    chance = random.Random(10)
    for _ in range(TRIALS):
        run = paused_run(tiers=ONE_OF_EACH, deadline=None)
        let_tiers_come(run, by=5 * HOUR)
        open_request = request(run)

        def pass_by(run: Run = run, asked: object = open_request.id) -> bool:
            return tiers.meet_tiers(run.id, asked)  # type: ignore[arg-type]

        assert sorted(meet(chance, pass_by, pass_by)) == [False, True]
        assert log(run).count("request_escalated") == 1
        whole(Run.objects.get(id=run.id))
