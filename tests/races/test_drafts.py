"""A person's pages save drafts at the moment at which another of them saves, removes or
signs: nobody hangs, and the folder of drafts holds what is open and drafted.
"""

import random
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import connection

from approvals import list_columns
from approvals.drafts import DraftChoice, save_drafts
from approvals.models import RequestDrafter
from checkpoints.models import PendingWrite, Run
from tests.races.meeting import TRIALS, meet, whole
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated
from tests.support.run_actions import pending, sign
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def saved(
    run: Run, by: User, rows: list[PendingWrite], verdict: str, number: int
) -> bool:
    choices = [
        DraftChoice(str(row.write), row.revision, row.hash, verdict, "", {})
        for row in rows
    ]
    return save_drafts(by, run, choices, number=number)


def counted_anew() -> None:
    """The rows of drafters are those that would be counted now."""
    rows = RequestDrafter.objects.order_by("id").values_list(
        "request", "by", "is_open", "drafts"
    )
    kept = list(rows)
    with connection.cursor() as cursor:
        for statement in list_columns.COPIES:
            cursor.execute(statement.format(**list_columns._names()))
    assert kept == list(rows)


def test_saving_and_signing_at_once_leaves_no_open_draft(rita: User) -> None:
    chance = random.Random(31)
    for _ in range(TRIALS):
        run = advanced(gated(many=2))
        rows = pending(run)
        saved(run, rita, rows, "reject", 1)
        meet(
            chance,
            partial(saved, run, rita, rows, "approve", 2),
            lambda run=run: sign(run, rita, ["approve", "approve"]),
            apart=0.02,
        )
        counted_anew()
        whole(run)


def test_saving_and_removing_at_once_counts_what_is_there(rita: User) -> None:
    chance = random.Random(32)
    run = advanced(gated(many=3))
    rows = pending(run)
    for trial in range(TRIALS):
        number = 10 * trial
        saved(run, rita, rows[:2], "reject", number + 1)
        meet(
            chance,
            partial(saved, run, rita, rows[1:], "approve", number + 2),
            partial(saved, run, rita, rows, "", number + 3),
            partial(saved, run, rita, rows[:1], "approve", number + 4),
        )
        counted_anew()
