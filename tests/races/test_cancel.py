"""Cancelling that meets a decision, a worker, or itself. Many trials, each at another
moment; one outcome each.
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Decision, RequestStatus
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine.errors import WrongStatus
from orchestrator.execution import loop
from tests.races.meeting import TRIALS, Thread, whole, work
from tests.support import cast, run_actions
from tests.support.processes import calls
from tests.support.run_actions import event_payloads, sign, state

pytestmark = pytest.mark.django_db(transaction=True)
TURNS = 7
"""More turns than the worker takes with a run of the loop."""


def test_the_first_of_a_concurrent_decision_and_cancel_stands_and_the_other_is_refused(
    tmp_path: Path, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    olive = people.starter
    firsts = set()
    for trial in range(TRIALS):
        run = run_actions.start("gated", tmp_path)
        barrier = threading.Barrier(2)
        # Most trials are close; in two of ten one of them is held back, so that each is
        # the first at times.
        late = {3: (0.1, 0.0), 7: (0.0, 0.1)}.get(
            trial % 10, (0.0, random.random() * 0.004)
        )

        def decide(
            run: Run = run, barrier: threading.Barrier = barrier, late: float = late[0]
        ) -> str:
            rows = run_actions.pending(run)
            barrier.wait()
            time.sleep(late)
            try:
                sign(run, rita, ["approve"] * len(rows))
            except WrongStatus as beaten:
                return str(beaten.facts["by"])
            return "signed"

        def cancel(
            run: Run = run, barrier: threading.Barrier = barrier, late: float = late[1]
        ) -> str:
            barrier.wait()
            time.sleep(late)
            return runs.cancel(run.id, by=olive).status

        signing = Thread(decide)
        cancelling = Thread(cancel)
        answer = signing.outcome()
        firsts.add(answer)
        assert cancelling.outcome() == Status.CANCELLED
        signed = answer == "signed"
        assert signed or answer == str([olive.username])
        assert Decision.objects.filter(run=run.id).count() == (4 if signed else 0)
        assert run_actions.request(run).status == (
            RequestStatus.SETTLED if signed else RequestStatus.WITHDRAWN
        )
        assert runs.advance(run.id).status == Status.CANCELLED
        assert len(event_payloads(run, "run_cancelled")) == 1
        whole(run, tmp_path)
    assert calls(tmp_path, "released") == [], (
        "nothing that was decided in a cancelled run is done"
    )
    enough = TRIALS >= 30
    assert not enough or firsts == {"signed", str([olive.username])}, (
        "each of them was the first in some trial"
    )


def test_a_cancel_while_a_worker_is_at_work_ends_the_run_once_and_between_two_supersteps(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(9)
    take_turn = loop._turn
    ends = set()
    for trial in range(TRIALS):
        run = runs.start("loop_every", {})
        reached = threading.Event()
        was_asked = threading.Event()
        # In the first trial the worker is done before anybody cancels, and in the second
        # it waits for that; else it is anywhere.
        moment = {0: TURNS, 1: 1}.get(trial, chance.randrange(TURNS))
        turns = itertools.count()

        def turn(
            *args: Any,
            moment: int = moment,
            reached: threading.Event = reached,
            asked: threading.Event | None = was_asked if trial == 1 else None,
            turns: Iterator[int] = turns,
        ) -> bool:
            if next(turns) == moment:
                reached.set()
                if asked is not None:
                    asked.wait(60)
            return take_turn(*args)

        def work_through(run: Run = run, reached: threading.Event = reached) -> None:
            try:
                work(run)
            finally:
                reached.set()

        monkeypatch.setattr(loop, "_turn", turn)
        worker = Thread(work_through)
        assert reached.wait(60)
        with contextlib.suppress(WrongStatus):  # it was completed before
            runs.cancel(run.id, by=people.starter)
        was_asked.set()
        worker.outcome()
        run.refresh_from_db()
        assert run.status in ENDS, f"trial {trial}: {run.status}"
        assert run.lease_until is None
        assert run.leased_by is None
        assert state(run)["total"] == run.superstep
        assert (
            len(event_payloads(run, "run_cancelled"))
            + len(event_payloads(run, "run_completed"))
            == 1
        )
        ends.add(run.status)
        before = (run.event_seq, run.superstep)
        run = runs.advance(run.id)
        assert (run.event_seq, run.superstep) == before
        whole(run)
    assert ends == {Status.CANCELLED, Status.COMPLETED}


def test_only_one_of_many_concurrent_cancels_is_recorded(
    tmp_path: Path, people: cast.People
) -> None:
    for _ in range(TRIALS // 8):
        run = run_actions.start("gated", tmp_path)
        barrier = threading.Barrier(3)

        def cancel(
            by: User, run: Run = run, barrier: threading.Barrier = barrier
        ) -> str:
            barrier.wait()
            return runs.cancel(run.id, by=by).status

        users = (people.starter, people.reviewer, people.second_reviewer)
        together = [Thread(lambda by=by, act=cancel: act(by)) for by in users]
        assert {one.outcome() for one in together} == {Status.CANCELLED}
        assert (
            len(event_payloads(run, "cancel_requested"))
            == len(event_payloads(run, "run_cancelled"))
            == 1
        )
