"""Two who act at the same moment, again and again; and what must be true of a run after
each trial.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import connections

from approvals.models import ApprovalRequest, Decision, Receipt, RequestStatus
from checkpoints.core.status import Status
from checkpoints.models import Run, RunEvent
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator.engine.errors import CountersignError
from orchestrator.execution import loop
from tests.support.processes import calls

TRIALS = int(os.environ.get("COUNTERSIGN_RACE_TRIALS", "20"))
"""Of each race; `make sweep` makes 200."""
WON = "won"


class Thread(threading.Thread):
    """A thread whose error is the test's error, and whose connections are closed at its
    end.
    """

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


def meet(
    chance: random.Random, *acts: Callable[[], Any], apart: float = 0.004
) -> list[Any]:
    """Do all of them at once, give or take `apart` seconds. Per act what it gave, or
    the refusal that it met.
    """
    barrier = threading.Barrier(len(acts))

    def at_once(act: Callable[[], Any], late: float) -> Any:
        barrier.wait()
        time.sleep(late)
        try:
            return act()
        except CountersignError as refused:
            return refused

    threads = [Thread(partial(at_once, act, chance.random() * apart)) for act in acts]
    return [thread.outcome() for thread in threads]


def winner_of(met: list[Any]) -> int:
    """The place of the only one who was not refused."""
    won = [
        n for n, thread in enumerate(met) if not isinstance(thread, CountersignError)
    ]
    assert len(won) == 1, met
    return won[0]


def work(run: Run) -> None:
    """One slice, if the run can be claimed."""
    claim = leases.claim_one(run.id)
    if claim:
        loop.run_slice(claim.id, claim.epoch)


def whole(run: Run, folder: Path | None = None) -> None:
    """Check what must be true after every trial, whoever won."""
    run.refresh_from_db()
    settled = ApprovalRequest.objects.filter(run=run, status=RequestStatus.SETTLED)
    resting = run.status == Status.PAUSED
    assert not (resting and settled.exists()), (
        "a paused run has a settled gate that nobody applies"
    )
    numbers = list(
        RunEvent.objects.filter(run=run).order_by("seq").values_list("seq", flat=True)
    )
    assert numbers == list(range(1, run.event_seq + 1)), "the log has a gap"
    assert verify_run(run.id) == []
    _receipts_agree(run)
    if folder:
        lines = calls(folder)
        assert len(lines) == len(set(lines)), "an effect happened twice"


def _receipts_agree(run: Run) -> None:
    """Each counted line of a receipt is a decision, and the other way round."""
    decided = Decision.objects.filter(run=run.id)
    assert run.decisions == decided.count()
    # A deadline signs nothing.
    signed = decided.filter(receipt__isnull=False)
    rows = {
        (decision.receipt_id, str(decision.write), decision.revision, decision.verdict)
        for decision in signed
    }
    facts = {
        (receipt.id, line["write"], line["revision"], line["verdict"])
        for receipt in Receipt.objects.filter(run=run)
        for line in receipt.lines
        if line["result"] == "counted"
    }
    assert rows == facts


def settled_by(met: list[Any], people: list[User]) -> User:
    """Return who won; each other one was told that it was he."""
    place = winner_of(met)
    names = [thread.facts["by"] for n, thread in enumerate(met) if n != place]
    assert names == [[people[place].username]] * (len(met) - 1), met
    return people[place]
