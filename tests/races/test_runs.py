"""Two who start, work on, settle or resume the same run at the same moment: one does,
and the other learns of it.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine.errors import KeyConflict, WrongStatus
from orchestrator.execution import loop
from orchestrator.worker import claimable
from tests.crash import graphs
from tests.races.meeting import TRIALS, meet, whole, winner_of
from tests.support import cast, run_actions
from tests.support.processes import calls
from tests.support.run_actions import event_payloads, state

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_starts_with_one_key_give_one_run(tmp_path: Path) -> None:
    chance = random.Random(11)
    for trial in range(TRIALS):
        run_input = {"folder": str(tmp_path), "number": f"N{trial}"}
        start_request = runs.StartRequest("effects", run_input, f"key-{trial}")
        both = meet(
            chance, *[lambda a=start_request: runs.start_or_find(a) for _ in range(2)]
        )
        assert sorted(new for _, new in both) == [False, True]
        assert both[0][0] == both[1][0]
        run = runs.advance(both[0][0].id)
        assert run.status == Status.COMPLETED
        assert len(event_payloads(run, "run_started")) == 1
        whole(run, tmp_path)
    assert Run.objects.count() == TRIALS
    assert len(calls(tmp_path, "sent")) == TRIALS


def test_a_start_with_a_taken_key_and_another_input_is_refused_naming_the_run(
    tmp_path: Path,
) -> None:
    chance = random.Random(12)
    for trial in range(TRIALS):
        both = meet(
            chance,
            *[
                lambda n=number, t=trial: runs.start(
                    "effects", {"folder": str(tmp_path), "number": n}, key=f"k-{t}"
                )
                for number in ("a", "b")
            ],
        )
        place = winner_of(both)
        assert isinstance(both[1 - place], KeyConflict)
        assert both[1 - place].facts == {
            "key": f"k-{trial}",
            "run": str(both[place].id),
        }
    assert Run.objects.count() == TRIALS


def test_one_of_two_workers_that_claim_a_run_gets_it(tmp_path: Path) -> None:
    chance = random.Random(13)
    for trial in range(TRIALS):
        run = runs.start("effects", {"folder": str(tmp_path), "number": f"N{trial}"})
        claims = meet(
            chance,
            *[lambda run=run: leases.claim_one(run.id) for _ in range(2)],
            apart=0.0,
        )
        assert sorted(bool(claim) for claim in claims) == [False, True]


def test_one_of_two_workers_that_look_for_the_next_run_gets_it(tmp_path: Path) -> None:
    chance = random.Random(16)
    only = claimable.claimable()
    for trial in range(TRIALS):
        run = runs.start("effects", {"folder": str(tmp_path), "number": f"N{trial}"})
        holds = meet(
            chance,
            *[lambda: leases.begin_next(worker=None, only=only) for _ in range(2)],
            apart=0.0,
        )
        (lease,) = [lease for lease in holds if lease is not None]
        assert lease.id == run.id
        assert lease.epoch == 2


def test_one_of_two_workers_with_the_same_run_proceeds(tmp_path: Path) -> None:
    chance = random.Random(14)
    for trial in range(TRIALS):
        run = runs.start("effects", {"folder": str(tmp_path), "number": f"N{trial}"})
        claim: Any = leases.claim_one(run.id)
        meet(
            chance,
            *[lambda c=claim: loop.run_slice(c.id, c.epoch) for _ in range(2)],
            apart=0.01,
        )
        run.refresh_from_db()
        assert run.status == Status.COMPLETED, "the same message twice begins once"
        assert run.epoch == 2, "the same message twice begins once"
        whole(run, tmp_path)
        assert len(calls(tmp_path, "sent")) == trial + 1


def test_a_worker_whose_lease_was_taken_over_in_the_midst_of_its_work_saves_nothing_more(
    tmp_path: Path,
) -> None:
    chance = random.Random(15)
    for trial in range(TRIALS):
        run = runs.start("loop_every", {"folder": str(tmp_path)})
        first: Any = leases.claim_one(run.id)
        meet(
            chance,
            lambda c=first: loop.run_slice(c.id, c.epoch),
            lambda run=run: _takes_over(run),
            apart=0.03,
        )
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED, f"trial {trial}"
        assert run.superstep == 6, f"trial {trial}"
        assert state(run)["total"] == 6, f"trial {trial}"
        whole(run)


def _takes_over(run: Run) -> None:
    """Another worker finds the lease expired."""
    Run.objects.filter(id=run.id, status=Status.RUNNING).update(
        lease_until="2000-01-01T00:00Z"
    )
    claim = leases.claim_one(run.id)
    if claim:
        loop.run_slice(claim.id, claim.epoch)


def test_one_of_two_concurrent_settlements_is_believed_and_the_refusal_names_its_author(
    tmp_path: Path, people: cast.People
) -> None:
    chance = random.Random(16)
    stella = people.steward
    olive = people.starter
    for _ in range(TRIALS):
        run = run_actions.start("c_unknown", tmp_path)
        assert run.status == Status.UNKNOWN
        met = meet(
            chance,
            lambda run=run: _settles(
                run, stella, happened=True, output={"notes": ["hers"]}
            ),
            lambda run=run: _settles(
                run, olive, happened=True, output={"notes": ["his"]}
            ),
        )
        place = winner_of(met)
        assert isinstance(met[1 - place], WrongStatus), met
        assert met[1 - place].facts["by"] == [stella, olive][place].username
        run = runs.advance(run.id)
        assert state(run)["notes"] == [["hers", "his"][place], "after 1"]
        assert len(event_payloads(run, "task_settled")) == 1
        assert TaskResult.objects.filter(run=run, node="post").count() == 1
        whole(run, tmp_path)


def _settles(run: Run, by: Any, **content: Any) -> Run:
    return runs.settle(run.id, "post:1:0", by=by, reason="looked", **content)


def test_one_of_two_concurrent_resumes_queues_the_run_and_the_other_is_refused(
    tmp_path: Path, people: cast.People
) -> None:
    chance = random.Random(17)
    stella = people.steward
    olive = people.starter
    for _ in range(TRIALS):
        graphs.fresh()
        run = run_actions.start("c_failure", tmp_path)
        graphs.BROKEN.clear()
        met = meet(
            chance,
            lambda run=run: runs.resume(run.id, by=stella),
            lambda run=run: runs.resume(run.id, by=olive),
        )
        refused = met[1 - winner_of(met)]
        assert isinstance(refused, WrongStatus)
        assert refused.facts["status"] == Status.QUEUED
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        assert len(event_payloads(run, "run_resumed")) == 1
        whole(run, tmp_path)
