"""A delegation that is revoked while it is used: what was revoked before gives nothing."""

import random
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import permissions, reviews
from approvals.models import Decision, Delegation
from checkpoints.models import TaskResult
from orchestrator.engine import Gate
from orchestrator.engine.errors import CountersignError
from tests.races.meeting import TRIALS, Thread, meet, whole, work
from tests.support import cast, run_actions
from tests.support.authority_graphs import paying, payments, signed
from tests.support.cast import UserFactory
from tests.support.confirmed_graphs import gated, items_of
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ben() -> User:
    return UserFactory.create(username="ben")


def away(rita: User, ben: User) -> Delegation:
    ends = timezone.now() + timedelta(days=1)
    return reviews.delegate(to=ben, ends=ends, by=rita)


def test_a_delegation_is_revoked_either_before_or_after_a_signature(
    rita: User, ben: User
) -> None:
    chance = random.Random(13)
    for _ in range(TRIALS):
        delegation = away(rita, ben)
        run = advanced(gated())
        items = items_of(run)
        answer, revoked = meet(
            chance,
            lambda run=run, items=items: reviews.sign(run.id, items, by=ben),
            lambda row=delegation: reviews.revoke_delegation(row.id, by=rita),
        )
        assert isinstance(revoked, Delegation)
        was_refused = isinstance(answer, CountersignError)
        assert Decision.objects.filter(run=run.id).exists() != was_refused
        whole(run)


def test_whoever_revokes_waits_for_a_signature_that_has_begun(
    rita: User, ben: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    delegation = away(rita, ben)
    run = advanced(gated())
    items = items_of(run)
    judged = permissions.right_to_decide
    revoking: list[Thread] = []

    def judged_slowly(*args: object, **options: object) -> permissions.RightToDecide:
        right = judged(*args, **options)  # type: ignore[arg-type]
        revoking.append(
            Thread(lambda: reviews.revoke_delegation(delegation.id, by=rita))
        )
        time.sleep(0.6)
        assert revoking[0].is_alive(), "it was revoked in the middle of a signature"
        return right

    monkeypatch.setattr(permissions, "right_to_decide", judged_slowly)
    reviews.sign(run.id, items, by=ben)
    assert revoking[0].outcome().revoked_at is not None
    assert Decision.objects.get().delegator == rita


def test_nothing_begins_on_a_delegation_that_was_revoked_before_its_intent(
    rita: User, ben: User
) -> None:
    chance = random.Random(14)
    checked: list[float] = []

    def recheck(state: Any, proposal: Any) -> bool:
        # The intent is not committed before this moment.
        time.sleep(chance.random() * 0.01)
        checked.append(time.monotonic())
        return True

    gate = Gate(reviewers=["group:claims"], recheck=recheck)
    for _ in range(TRIALS):
        delegation = away(rita, ben)
        run = signed(paying(gate=gate), ben)
        checked.clear()

        def revoked(row: Delegation = delegation) -> float:
            # A worker claims and loads the run before it comes to the intent.
            time.sleep(chance.random() * 0.15)
            reviews.revoke_delegation(row.id, by=rita)
            return time.monotonic()

        with payments() as paid:
            _, moment = meet(chance, lambda run=run: work(run), revoked)
            if paid:
                assert moment > checked[-1], "it was revoked, and the payment began"
            intents = TaskResult.objects.filter(run=run, node="pay")
            assert intents.count() == len(paid)
        whole(run)
