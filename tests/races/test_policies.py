"""An automatic policy that meets a signature, and a veto that meets one. Many trials; one
outcome each, and no wake is lost.
"""

import random
from typing import Any

import pytest

from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine.errors import AlreadyDecided, WrongStatus
from tests.races.meeting import TRIALS, meet, whole
from tests.support import cast, run_actions
from tests.support.deadlines import gated
from tests.support.run_actions import request, sign
from tests.support.small_graphs import registered, started

pytestmark = pytest.mark.django_db(transaction=True)


def _asking(name: str, **gate: Any) -> Run:
    """A run whose request is open, and whose policy was not asked yet."""
    without = {**gate, "auto": lambda state, proposal: "not yet"}
    run = runs.advance(started(gated(name, deadline=None, **without)).id)
    registered(gated(name, deadline=None, **gate))
    return run


def _deciders(run: Run) -> set[tuple[str, str]]:
    rows = Decision.objects.filter(run=run.id).exclude(verdict="no_auto")
    return set(rows.values_list("by_name", "verdict"))


def test_the_first_of_a_concurrent_policy_and_rejection_decides(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    chance = random.Random(11)
    for _ in range(TRIALS):
        run = _asking("racing-policy", auto=lambda state, proposal: True, quorum=2)
        steward = run_actions.reviewer(people.steward)
        # An edit brings the revision of which the policy is asked.
        sign(run, steward, [("edit", "Dear Sir"), ("edit", 5)])

        def reject(run: Run = run) -> str:
            try:
                sign(run, rita, ["reject", "reject"])
            except (AlreadyDecided, WrongStatus):
                return "late"
            return "signed"

        def work(run: Run = run) -> str:
            return runs.advance(run.id).status

        answer, _ = meet(chance, reject, work)
        run = runs.advance(run.id)
        is_rejected = answer == "signed"
        assert run.status == (Status.REJECTED if is_rejected else Status.COMPLETED)
        whole(run)


def test_nothing_passes_a_veto_when_an_approval_comes_at_the_same_moment(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    steward = run_actions.reviewer(people.steward)
    chance = random.Random(12)
    for _ in range(TRIALS):
        answers = ["not yet", False]
        flow = gated(
            "racing-veto",
            deadline=None,
            veto=lambda state, proposal, left=answers: (
                left.pop(0) if len(left) > 1 else left[0]
            ),
        )
        run = runs.advance(started(flow).id)
        sign(run, rita, ["approve", "approve"])

        def again(run: Run = run) -> str:
            try:
                sign(run, steward, ["approve", "approve"])
            except (AlreadyDecided, WrongStatus):
                return "late"
            return "signed"

        def work(run: Run = run) -> str:
            return runs.advance(run.id).status

        meet(chance, again, work)
        run = runs.advance(run.id)
        if run.status == Status.PAUSED:
            assert request(run).status == "open"
            sign(run, steward, ["approve", "approve"])
            run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert ("the veto", "no_veto") in _deciders(run)
        whole(run)
