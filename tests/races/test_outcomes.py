"""Reports that meet each other, or what moves the approval away from under them: there
is one outcome at most, and the log agrees with what the callers were answered.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from checkpoints import retention
from checkpoints.models import Run
from orchestrator import asking, runs
from orchestrator.engine import registry
from orchestrator.engine.errors import CountersignError
from orchestrator.graphs import approval
from tests.races.meeting import TRIALS, meet, whole, winner_of, work
from tests.support.approvals import decided, opened, payers
from tests.support.cast import People
from tests.support.run_actions import event_payloads

pytestmark = pytest.mark.django_db(transaction=True)
ITEMS = [{"id": "a", "value": 1}]
ACTS: dict[str, Callable[[Run, People], Any]] = {
    "rewind": lambda run, _: runs.rewind(run.id, f"{run.key}:initial"),
    "erase": lambda run, people: retention.erase(run.id, by=people.steward),
    "cancel": lambda run, _: runs.cancel(run.id),
    "work": lambda run, _: work(run),
}


@pytest.fixture
def rita(people: People) -> User:
    registry.replace(approval)
    payers(people.reviewer)
    return people.reviewer


def _report(asked: asking.Approval, result: str) -> Callable[[], Any]:
    said = [{"item": "a", "hash": asked.items[0].hash, "result": result}]
    return lambda: asking.report(asked.run.id, said)


def _reported(asked: asking.Approval) -> list[str]:
    lines = event_payloads(asked.run, "outcome_reported")
    return [line["result"] for line in lines]


def test_one_of_two_concurrent_reports_stands(rita: User) -> None:
    chance = random.Random(11)
    for _ in range(max(3, TRIALS // 4)):
        asked_approval = decided(opened(items=ITEMS), rita, "approve")
        met = meet(
            chance, _report(asked_approval, "done"), _report(asked_approval, "failed")
        )
        winner = winner_of(met)
        assert _reported(asked_approval) == [("done", "failed")[winner]]
        whole(asked_approval.run)


def test_the_same_report_twice_at_once_is_one_line(rita: User) -> None:
    chance = random.Random(12)
    for _ in range(max(3, TRIALS // 4)):
        asked_approval = decided(opened(items=ITEMS), rita, "approve")
        met = meet(
            chance, _report(asked_approval, "done"), _report(asked_approval, "done")
        )
        assert not any(isinstance(one, CountersignError) for one in met)
        assert _reported(asked_approval) == ["done"]
        whole(asked_approval.run)


@pytest.mark.parametrize("what", ACTS)
def test_a_report_that_meets_what_moves_its_approval_is_there_or_refused(
    rita: User, people: People, what: str
) -> None:
    chance = random.Random(13)
    for _ in range(max(3, TRIALS // 4)):
        asked_approval = opened(items=ITEMS)
        # The signature is there, and what follows it may not be.
        if what in ("cancel", "work"):
            asked_approval = _signed(asked_approval, rita)
        else:
            asked_approval = decided(asked_approval, rita, "approve")
        act = partial(ACTS[what], asked_approval.run, people)
        reported, _ = meet(chance, _report(asked_approval, "done"), act)
        stands = not isinstance(reported, CountersignError)
        assert _reported(asked_approval) == (["done"] if stands else [])
        whole(asked_approval.run)


def _signed(asked: asking.Approval, by: User) -> asking.Approval:
    [item] = asked.items
    decision = {"write": str(item.write), "hash": item.hash, "verdict": "approve"}
    reviews.sign(asked.run.id, [decision], by=by)
    return asking.approval_of(runs.get(asked.run.id))
