"""Decisions that meet a worker, or each other, in real transactions. Many trials, each at another moment."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import leases
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runner, runs
from orchestrator.engine.errors import AlreadyDecided, StaleProposal
from tests import cast
from tests.processes import calls, until
from tests.runner import desk
from tests.runner.desk import said, sign, state

pytestmark = pytest.mark.django_db(transaction=True)
TRIALS = 200


class Thread(threading.Thread):
    """A thread whose error is the test's error, and whose connections are closed at its end."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.act = act
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.act()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def outcome(self) -> Any:
        self.join(60)
        assert not self.is_alive(), "the thread hangs"
        if self.error:
            raise self.error
        return self.result


def _work(run: Run) -> None:
    claim = leases.claim_one(run.id)
    if claim:
        runner.work(claim.id, claim.epoch)


def _nothing_settled_is_left_behind(run: Run) -> None:
    run.refresh_from_db()
    resting = run.status == Status.PAUSED
    left = ApprovalRequest.objects.filter(run=run, status=RequestStatus.SETTLED)
    assert not (resting and left.exists()), "a paused run has a settled gate that nobody applies"


def test_a_decision_signed_while_a_branch_of_its_run_is_worked_on_is_never_lost(
    tmp_path: Path, people: cast.People
) -> None:
    rita = desk.reviewer(people.reviewer)
    chance = random.Random(8)
    for trial in range(TRIALS):
        run = runs.start("beside", {"folder": str(tmp_path)})
        worker = Thread(lambda run=run: _work(run))
        until(lambda run=run: desk.pending(run), what="the gate")
        time.sleep(chance.random() * 0.04)
        _sign_until_settled(run, rita)
        worker.outcome()
        _nothing_settled_is_left_behind(run)
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED, f"trial {trial}: {run.status} at {run.at_node}"
        notes = state(run)["notes"]
        assert notes.count("from the gate") == 1, f"trial {trial}: {notes}"
        assert notes.count("after the gate") == 1
        assert len(said(run, "gate_applied")) == 1


def _sign_until_settled(run: Run, by: User) -> None:
    """Sign what is open, and again what came back, as a person would."""
    while True:
        try:
            receipt = sign(run, by, ["approve", "approve"])
        except StaleProposal:
            continue
        except AlreadyDecided:
            return
        if all(line["result"] == "counted" for line in receipt.lines):
            break
    # What comes back because the branch moved its base after the signature is signed again.
    until(lambda: _settled_or_signed_again(run, by), what="the gate to be applied or signed again")


def _settled_or_signed_again(run: Run, by: User) -> bool:
    request = desk.request(run)
    if request.status == RequestStatus.APPLIED:
        return True
    run.refresh_from_db()
    if request.status == RequestStatus.OPEN:
        try:
            sign(run, by, ["approve", "approve"])
        except (StaleProposal, AlreadyDecided):
            return False
    return run.status != Status.RUNNING


def test_of_two_people_who_decide_one_write_at_once_one_wins_and_the_other_is_told_who(
    tmp_path: Path, people: cast.People
) -> None:
    rita, ravi = desk.reviewer(people.reviewer), desk.reviewer(people.second_reviewer)
    for trial in range(TRIALS // 4):
        run = desk.start("gated", tmp_path, number=str(trial))
        barrier = threading.Barrier(2)

        def decide(by: User, verdict: str, run: Run = run, barrier: threading.Barrier = barrier) -> str:
            rows = desk.pending(run)
            barrier.wait()
            try:
                sign(run, by, [verdict] * len(rows))
            except AlreadyDecided as beaten:
                return str(beaten.facts["by"])
            return "won"

        both = [Thread(lambda d=decide: d(rita, "approve")), Thread(lambda d=decide: d(ravi, "reject"))]
        results = [thread.outcome() for thread in both]
        assert sorted(r == "won" for r in results) == [False, True], results
        winner = rita if results[0] == "won" else ravi
        assert str([winner.username]) in results
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert Decision.objects.filter(run=run.id).count() == 4
        assert len(said(run, "gate_applied")) == 1
    assert len(calls(tmp_path, "released")) <= TRIALS // 4


def test_the_last_two_decisions_that_arrive_together_wake_the_run_once(tmp_path: Path, people: cast.People) -> None:
    rita, ravi = desk.reviewer(people.reviewer), desk.reviewer(people.second_reviewer)
    for _ in range(TRIALS // 8):
        run = desk.start("gated", tmp_path)
        before = Run.objects.values_list("wakes", flat=True).get(id=run.id)
        halves = [
            Thread(lambda run=run: sign(run, rita, ["approve", "approve", None, None])),
            Thread(lambda run=run: sign(run, ravi, [None, None, "approve", "approve"])),
        ]
        for half in halves:
            half.outcome()
        assert Run.objects.values_list("wakes", flat=True).get(id=run.id) == before + 1
        _nothing_settled_is_left_behind(run)
        assert runs.advance(run.id).status == Status.COMPLETED


def test_of_two_workers_that_are_given_one_run_one_proceeds(tmp_path: Path) -> None:
    for trial in range(TRIALS // 8):
        run = runs.start("effects", {"folder": str(tmp_path), "number": f"N{trial}"})
        claims = [Thread(lambda run=run: leases.claim_one(run.id)) for _ in range(2)]
        taken = [claim for claim in (thread.outcome() for thread in claims) if claim]
        assert len(taken) == 1
        works = [Thread(lambda c=taken[0]: runner.work(c.id, c.epoch)) for _ in range(2)]
        for work in works:
            work.outcome()
        run.refresh_from_db()
        assert (run.status, run.epoch) == (Status.COMPLETED, 2), "the same message twice begins once"
        assert len(calls(tmp_path, "sent")) == trial + 1
