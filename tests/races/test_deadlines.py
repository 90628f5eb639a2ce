"""A deadline that meets a signature or a cancel. Many trials; whoever has the run's lock
first wins, the other is told by whom it was decided, and no wake is lost.
"""

import random

import pytest

from approvals import deadlines
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine.errors import AlreadyDecided
from tests.races.meeting import TRIALS, meet, whole
from tests.support import cast, run_actions
from tests.support.deadlines import let_come, paused_run
from tests.support.run_actions import request, sign

pytestmark = pytest.mark.django_db(transaction=True)


def _deciders(run: Run) -> set[str]:
    rows = Decision.objects.filter(run=run.id)
    return set(rows.values_list("by_name", flat=True))


def test_the_first_of_a_concurrent_signature_and_deadline_decides(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    chance = random.Random(7)
    firsts = set()
    for _ in range(TRIALS):
        run = paused_run()
        let_come(run)
        open_request = request(run)

        def decide(run: Run = run) -> str:
            try:
                sign(run, rita, ["approve", "approve"])
            except AlreadyDecided as late:
                return str(late.facts["by"])
            return "signed"

        def pass_by(run: Run = run, asked: object = open_request.id) -> bool:
            return deadlines.meet_deadline(run.id, asked)  # type: ignore[arg-type]

        answer, has_decided = meet(chance, decide, pass_by)
        firsts.add(answer)
        assert answer == ("['the deadline']" if has_decided else "signed")
        assert _deciders(run) == {"the deadline" if has_decided else "rita"}
        run.refresh_from_db()
        assert run.status == Status.QUEUED, "the wake is not lost"
        run = runs.advance(run.id)
        expected = Status.REJECTED if has_decided else Status.COMPLETED
        assert run.status == expected
        whole(run)
    assert TRIALS < 30 or len(firsts) == 2


def test_a_cancel_and_a_concurrent_deadline_close_the_request_once(
    people: cast.People,
) -> None:
    chance = random.Random(8)
    for _ in range(TRIALS):
        run = paused_run()
        let_come(run)
        open_request = request(run)

        def cancel(run: Run = run) -> str:
            return runs.cancel(run.id, by=people.steward).status

        def pass_by(run: Run = run, asked: object = open_request.id) -> bool:
            return deadlines.meet_deadline(run.id, asked)  # type: ignore[arg-type]

        status, has_decided = meet(chance, cancel, pass_by)
        assert status == Status.CANCELLED
        assert request(run).status == ("settled" if has_decided else "withdrawn")
        assert _deciders(run) == ({"the deadline"} if has_decided else set())
        whole(runs.advance(run.id))
