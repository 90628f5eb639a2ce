"""A revocation that meets the intent of a node that acts on the signature. Many trials;
nothing that was taken away before the intent was written lets anything begin.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from checkpoints.models import Run, TaskResult
from orchestrator.engine import Gate
from tests.races.meeting import TRIALS, meet, whole, work
from tests.support import cast, run_actions
from tests.support.authority_graphs import leave, paying, payments, signed

pytestmark = pytest.mark.django_db(transaction=True)


def _deactivate(user: User) -> None:
    user.is_active = False
    user.save()


def _give_back(user: User) -> None:
    user.is_active = True
    user.save()
    run_actions.reviewer(user)


def _rename_group(user: User) -> None:
    Group.objects.filter(name="claims").update(name="former claims")


def _rename_group_back() -> None:
    Group.objects.filter(name="former claims").update(name="claims")


@pytest.mark.parametrize("revoke", [leave, _deactivate, _rename_group])
def test_nothing_begins_that_was_revoked_before_its_intent(
    people: cast.People, revoke: Callable[[User], None]
) -> None:
    chance = random.Random(11)
    rita = run_actions.reviewer(people.reviewer)
    checked: list[float] = []

    def recheck(state: Any, proposal: Any) -> bool:
        # The intent is not committed before this moment.
        time.sleep(chance.random() * 0.01)
        checked.append(time.monotonic())
        return True

    gate = Gate(reviewers=["group:claims"], recheck=recheck)
    begun = 0
    for _ in range(TRIALS):
        run = signed(paying(gate=gate), rita)
        checked.clear()

        def revoked() -> float:
            # A worker claims and loads the run before it comes to the intent.
            time.sleep(chance.random() * 0.15)
            revoke(User.objects.get(pk=rita.pk))
            return time.monotonic()

        with payments() as paid:
            _, moment = meet(chance, lambda run=run: work(run), revoked)
            if paid:
                begun += 1
                assert moment > checked[-1], "it was revoked, and the payment began"
            assert _intents(run) == len(paid)
        _rename_group_back()
        _give_back(rita)
        whole(run)
    assert TRIALS < 30 or 0 < begun < TRIALS


def _intents(run: Run) -> int:
    return TaskResult.objects.filter(run=run, node="pay").count()
