"""A message comes at the moment at which its run asks, or another brings the same: none
is lost, and none takes effect twice.
"""

import random
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.doors import verbs as doors
from approvals.models import Decision, DoorMessage
from checkpoints.core.status import Status
from orchestrator import runs
from orchestrator.engine.errors import CountersignError, InvalidValue
from tests.races.meeting import TRIALS, meet, whole, work
from tests.support import cast, run_actions
from tests.support.doors import Sender, ask_only, waiting_run, work_off
from tests.support.question_graphs import asking
from tests.support.run_actions import sign
from tests.support.small_graphs import registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def test_a_message_and_the_opening_of_its_question_at_once_meet() -> None:
    chance = random.Random(21)
    sender = Sender()
    registered(asking(fn=ask_only))
    for trial in range(TRIALS):
        run = runs.start("asking", {}, key=f"R-{trial}")
        answer, _ = meet(
            chance,
            lambda run=run: sender.send(f"msg_{run.key}", key=run.key, paid=5),
            lambda run=run: work(run),
            apart=0.05,
        )
        assert answer.status_code in (200, 202)
        # A worker passes by a run that the message has locked.
        runs.advance(run.id)
        work_off()
        message = DoorMessage.objects.get(message_id=f"msg_{run.key}")
        assert message.status == "delivered"
        assert runs.advance(run.id).status == Status.COMPLETED
        whole(run)


def test_a_message_and_the_start_of_its_run_at_once_meet() -> None:
    chance = random.Random(22)
    sender = Sender()
    registered(asking(fn=ask_only))
    for trial in range(TRIALS):
        key = f"S-{trial}"
        answer, run = meet(
            chance,
            lambda key=key: sender.send(f"msg_{key}", key=key, paid=5),
            lambda key=key: runs.advance(runs.start("asking", {}, key=key).id),
            apart=0.05,
        )
        assert answer.status_code in (200, 202)
        # A worker passes by a run that the message has locked.
        runs.advance(run.id)
        work_off()
        assert DoorMessage.objects.get(message_id=f"msg_{key}").status == "delivered"
        assert runs.advance(run.id).status == Status.COMPLETED
        whole(run)


def test_the_same_message_twice_at_once_takes_effect_once() -> None:
    chance = random.Random(23)
    sender = Sender()
    for trial in range(TRIALS):
        run = waiting_run(f"T-{trial}")
        met = meet(
            chance,
            lambda run=run: sender.send(f"msg_{run.key}", key=run.key),
            lambda run=run: sender.send(f"msg_{run.key}", key=run.key),
        )
        assert [answer.status_code for answer in met] == [200, 200]
        assert Decision.objects.filter(run=run.id).count() == 1
        whole(run)


def test_of_a_message_and_a_person_at_once_one_answers(rita: User) -> None:
    chance = random.Random(24)
    sender = Sender()
    for trial in range(TRIALS):
        run = waiting_run(f"U-{trial}")
        answer, signed = meet(
            chance,
            lambda run=run: sender.send(f"msg_{run.key}", key=run.key),
            lambda run=run: sign(run, rita, [("edit", 7)]),
        )
        is_signed = not isinstance(signed, CountersignError)
        assert (answer.status_code == 409) == is_signed
        message = DoorMessage.objects.get(message_id=f"msg_{run.key}")
        assert (message.status == "refused") == is_signed
        assert Decision.objects.filter(run=run.id).count() == 1
        whole(run)


def test_of_two_doors_of_a_name_at_once_one_is_made() -> None:
    chance = random.Random(25)
    account = Sender().account
    for trial in range(TRIALS):

        def make(slug: str = f"door-{trial}") -> Any:
            return doors.make_door(
                slug,
                account=account,
                graph="asking",
                node="ask",
                key_pointer="/order",
                by=None,
            )

        met = meet(chance, make, make)
        refusals = [answer for answer in met if isinstance(answer, InvalidValue)]
        assert len(refusals) == 1
        assert refusals[0].facts["path"] == "slug"
