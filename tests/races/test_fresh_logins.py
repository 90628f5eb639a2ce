"""Two acts at once with one log-in at the provider: it confirms one of them."""

import random

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.confirmation import Confirmation
from approvals.models import Decision
from approvals.people import fresh_logins
from checkpoints.db.clock import read_now
from orchestrator.engine.errors import ConfirmationRequired
from tests.races.meeting import TRIALS, meet, whole, winner_of
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)
SESSION = "a" * 64


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def log_in(person: User, nonce: str) -> bool:
    return fresh_logins.keep(person, session=SESSION, nonce=nonce, at=read_now())


def test_one_log_in_confirms_one_of_two_signatures_at_once(rita: User) -> None:
    chance = random.Random(31)
    confirmation = Confirmation(rita.pk, "log-in", session=SESSION)
    for trial in range(TRIALS):
        runs = [advanced(gated(confirm="password")) for _ in range(2)]
        items = [items_of(run) for run in runs]
        assert log_in(rita, str(trial))
        met = meet(
            chance,
            *(
                lambda run=run, items=items: reviews.sign(
                    run.id, items, by=rita, confirmation=confirmation
                )
                for run, items in zip(runs, items, strict=True)
            ),
        )
        winner = winner_of(met)
        refused = met[1 - winner]
        assert isinstance(refused, ConfirmationRequired)
        assert refused.facts["reason"] == "used"
        decided = Decision.objects.filter(run__in=[run.id for run in runs])
        assert decided.get().run == runs[winner].id
        for run in runs:
            whole(run)


def test_one_answer_of_the_provider_at_two_places_is_kept_once(rita: User) -> None:
    chance = random.Random(32)
    for trial in range(TRIALS):
        met = meet(chance, *(lambda nonce=str(trial): log_in(rita, nonce),) * 2)
        assert sorted(met) == [False, True]
        assert fresh_logins.use_up(rita, session=SESSION, at=read_now())
        # Not even once it has confirmed something.
        assert not log_in(rita, str(trial))
