"""The worker is killed at five moments; the run goes on, and what is outside shows what
it did.
"""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from orchestrator import runs
from tests.support import cast
from tests.support.processes import calls, until, with_mark, worker

pytestmark = pytest.mark.django_db(transaction=True)
MOMENTS = [
    "before_intent",
    "after_intent",
    "after_effect",
    "before_commit",
    "on_its_way",
    "after_commit",
]
END_STATE = {
    "notes": ["order A-1", "paid", "sent", "closed"],
    "total": 10,
    "payout": None,
    "letter": "",
    "paid": "A-1",
    "sent": "A-1",
}


def _status(run: Run) -> str:
    return Run.objects.values_list("status", flat=True).get(id=run.id)


def _rested(run: Run) -> str:
    wanted = {Status.COMPLETED, Status.FAILED, Status.UNKNOWN, Status.PAUSED}
    return until(
        lambda: _status(run) if _status(run) in wanted else "", what="the run to rest"
    )


def _state(run: Run) -> dict[str, object]:
    head = Run.objects.values_list("head", flat=True).get(id=run.id)
    return timeline.state_at(head)["scratch"]


def _start(tmp_path: Path, by: User) -> Run:
    return runs.start("effects", {"folder": str(tmp_path)}, by=by)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_payment_is_held_once_wherever_the_worker_is_killed(
    moment: str, tmp_path: Path, people: cast.People
) -> None:
    run = _start(tmp_path, people.starter)
    with worker(tmp_path / "log", **with_mark(tmp_path, f"{moment}:pay")):
        assert _rested(run) == Status.COMPLETED
    assert (tmp_path / "killed").exists(), "the worker was never killed"
    paid = calls(tmp_path, "paid")
    assert len(set(paid)) == 1, "every call carries the same idempotency key"
    assert len(paid) <= 2
    assert len(calls(tmp_path, "sent")) == 1
    assert _state(run) == END_STATE


@pytest.mark.parametrize("moment", ["after_intent", "after_effect"])
def test_a_letter_killed_between_intent_and_result_is_unknown_until_a_person_settles_it(
    moment: str, tmp_path: Path, people: cast.People
) -> None:
    run = _start(tmp_path, people.starter)
    with worker(tmp_path / "log", **with_mark(tmp_path, f"{moment}:send")):
        assert _rested(run) == Status.UNKNOWN
        before = len(calls(tmp_path, "sent"))
        assert before == (1 if moment == "after_effect" else 0)
        if moment == "after_effect":
            output = {"sent": "A-1", "notes": ["sent"]}
            runs.settle(
                run.id,
                "send:1:0",
                happened=True,
                output=output,
                by=people.starter,
                reason="seen in the post",
            )
        else:
            until(
                lambda: _settles_not_done(run, people.starter),
                what="the attempt to be over",
            )
        assert _rested(run) == Status.COMPLETED
    assert len(calls(tmp_path, "sent")) == 1
    assert _state(run) == END_STATE
    settled = TaskResult.objects.get(run=run, node="send", settled_by=people.starter)
    assert settled.settled_reason


def _settles_not_done(run: Run, by: User) -> bool:
    from orchestrator.engine.errors import WrongStatus

    try:
        runs.settle(run.id, "send:1:0", happened=False, by=by, reason="not in the post")
    except WrongStatus:
        return False
    return True


@pytest.mark.parametrize("moment", ["before_intent", "before_commit", "after_commit"])
def test_a_letter_killed_outside_intent_and_result_is_sent_once_without_asking(
    moment: str, tmp_path: Path, people: cast.People
) -> None:
    run = _start(tmp_path, people.starter)
    with worker(tmp_path / "log", **with_mark(tmp_path, f"{moment}:send")):
        assert _rested(run) == Status.COMPLETED
    assert (tmp_path / "killed").exists(), "the worker was never killed"
    assert len(calls(tmp_path, "sent")) == 1
    assert _state(run) == END_STATE
