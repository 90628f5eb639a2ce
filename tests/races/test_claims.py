"""Two who take one review at once: one has it, and the other reads who."""

import random
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import RequestClaim
from orchestrator.engine.errors import Claimed
from tests.races.meeting import TRIALS, meet, whole, winner_of
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import event_payloads, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def both(people: cast.People) -> list[User]:
    return [
        run_actions.reviewer(people.reviewer),
        run_actions.reviewer(people.second_reviewer),
    ]


def test_one_of_two_concurrent_claims_wins_and_the_other_is_refused_by_name(
    tmp_path: Path, both: list[User]
) -> None:
    chance = random.Random(11)
    for trial in range(TRIALS):
        run = advanced(gated(exclusive=bool(trial % 2)))
        open_request = request(run)
        met = meet(
            chance,
            lambda asked=open_request: reviews.claim(asked.id, by=both[0]),
            lambda asked=open_request: reviews.claim(asked.id, by=both[1]),
        )
        winner = both[winner_of(met)]
        (refused,) = [answer for answer in met if isinstance(answer, Claimed)]
        assert refused.facts["by"] == [winner.username]
        assert RequestClaim.objects.get(request=open_request).by == winner
        assert len(event_payloads(run, "request_claimed")) == 1
        whole(run)


def test_a_claim_and_a_signature_of_another_at_once_come_one_after_the_other(
    both: list[User],
) -> None:
    chance = random.Random(12)
    for _ in range(TRIALS):
        run = advanced(gated(exclusive=True))
        open_request = request(run)
        items = items_of(run)
        met = meet(
            chance,
            lambda asked=open_request: reviews.claim(asked.id, by=both[0]),
            lambda run=run, items=items: reviews.sign(run.id, items, by=both[1]),
        )
        # Either the claim came first and kept the other out, or it came too late.
        winner_of(met)
        has_claim = RequestClaim.objects.filter(request=open_request).exists()
        assert has_claim == isinstance(met[1], Claimed)
        whole(run)
