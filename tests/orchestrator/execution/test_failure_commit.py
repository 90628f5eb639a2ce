"""Failures, retries, unknown outcomes and lost leases on the database."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import commit as ledger
from checkpoints.models import Checkpoint, LateResult, Run, TaskResult
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator import runs
from orchestrator.engine import Task
from orchestrator.engine.errors import (
    InvalidValue,
    StaleLease,
    UnknownThing,
    WrongStatus,
)
from orchestrator.execution import loop
from tests.graphs_app import graphs
from tests.support import cast
from tests.support.forging import rewrite
from tests.support.processes import calls
from tests.support.run_actions import event_payloads, log, start, state
from tests.support.small_graphs import held

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _mended() -> Iterator[None]:
    yield
    graphs.BROKEN.clear()


def test_a_retry_counts_its_attempts_and_goes_on(tmp_path: Path) -> None:
    run = start("flaky", tmp_path)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["attempt 3", "fragile", "beside", "careful"]


def test_a_failed_task_leaves_its_superstep_open_and_what_finished_is_kept(
    tmp_path: Path,
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    assert run.status == Status.FAILED
    error = unpack_json(run.error)
    assert error["node"] == "fragile"
    assert error["message"] == "fragile is broken"
    assert error["code"] == "node_failed"
    row = Checkpoint.objects.get(id=run.head)
    assert row.source == "failure"
    assert row.committed is False
    assert state(run)["notes"] == ["attempt 3"], "the state is as before the superstep"
    assert len(calls(tmp_path, "beside")) == 1


def test_resuming_runs_only_the_tasks_without_a_result(
    tmp_path: Path, people: cast.People
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    graphs.BROKEN.clear()
    runs.resume(run.id, by=people.starter)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(calls(tmp_path, "beside")) == 1
    assert state(run)["notes"] == ["attempt 3", "fragile", "beside", "careful"], (
        "reduced in declared order"
    )
    assert run.error_code == ""


def test_not_done_says_that_nothing_happened_and_the_run_fails_instead_of_being_unknown(
    tmp_path: Path,
) -> None:
    graphs.BROKEN.add("careful")
    run = start("flaky", tmp_path)
    assert run.status == Status.FAILED
    assert not calls(tmp_path, "careful")
    graphs.BROKEN.clear()
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert len(calls(tmp_path, "careful")) == 1


def test_a_run_that_did_not_fail_cannot_be_resumed(tmp_path: Path) -> None:
    run = start("effects", tmp_path)
    with pytest.raises(WrongStatus):
        runs.resume(run.id)


def _cut_off_after_the_intent(run: Run, node: str) -> None:
    """Leave the run as a worker leaves it that died right after the intent of `node`."""
    claim = leases.claim_one(run.id)
    assert claim is not None
    lease = leases.begin_lease(claim.id, claim.epoch)
    assert lease is not None
    journal.write_intents(
        lease, [journal.Intent(Task(node, 1), 1, "external", "0" * 64, 0.0)]
    )
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")


def _before_send(tmp_path: Path) -> Run:
    """A run whose next superstep is `send`."""
    run = runs.start("effects", {"folder": str(tmp_path)})
    for _ in range(2):
        claim = leases.claim_one(run.id)
        assert claim is not None
        looks = iter([False])
        loop.run_slice(
            claim.id, claim.epoch, draining=lambda looks=looks: next(looks, True)
        )
    run.refresh_from_db()
    assert run.superstep == 2
    return run


def test_an_effect_that_may_have_happened_stops_the_run_as_unknown_and_is_not_repeated(
    tmp_path: Path,
) -> None:
    run = _before_send(tmp_path)
    _cut_off_after_the_intent(run, "send")
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert not calls(tmp_path, "sent")
    assert runs.advance(run.id).status == Status.UNKNOWN
    with pytest.raises(WrongStatus):
        runs.resume(run.id)


def test_settling_that_it_happened_uses_the_given_output_and_never_calls(
    tmp_path: Path, people: cast.People
) -> None:
    run = _before_send(tmp_path)
    _cut_off_after_the_intent(run, "send")
    run = runs.advance(run.id)
    output = {"sent": "by hand", "notes": ["settled"]}
    run = runs.settle(
        run.id,
        "send:1:0",
        happened=True,
        output=output,
        by=people.starter,
        reason="seen",
    )
    assert run.status == Status.QUEUED
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["sent"] == "by hand"
    assert not calls(tmp_path, "sent")
    assert event_payloads(run, "task_settled")[0]["reason"] == "seen"


def test_settling_as_not_done_is_refused_during_the_attempt_and_needs_an_extra_yes_after(
    tmp_path: Path, people: cast.People
) -> None:
    run = _before_send(tmp_path)
    _cut_off_after_the_intent(run, "send")
    run = runs.advance(run.id)
    with pytest.raises(WrongStatus) as going_on:
        runs.settle(run.id, "send:1:0", happened=False, by=people.starter, reason="no")
    assert "until" in going_on.value.facts
    rewrite(
        TaskResult.objects.get(run=run, node="send"),
        over_at=datetime(2000, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(WrongStatus) as risky:
        runs.settle(run.id, "send:1:0", happened=False, by=people.starter, reason="no")
    assert risky.value.facts["needs"] == "accept_risk"
    runs.settle(
        run.id,
        "send:1:0",
        happened=False,
        accept_risk=True,
        by=people.starter,
        reason="no",
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(calls(tmp_path, "sent")) == 1


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"task": "pay:1:0"}, UnknownThing),
        ({"task": "nonsense"}, UnknownThing),
        ({"reason": " "}, InvalidValue),
        ({"output": {"no_such_channel": 1}}, InvalidValue),
        ({"output": {"sent": 7}}, InvalidValue),
    ],
)
def test_a_settling_that_makes_no_sense_changes_nothing(
    how: dict[str, object], error: type[Exception], tmp_path: Path, people: cast.People
) -> None:
    run = _before_send(tmp_path)
    _cut_off_after_the_intent(run, "send")
    run = runs.advance(run.id)
    columns = {"task": "send:1:0", "output": {"sent": "x"}, "reason": "seen", **how}
    task = columns.pop("task")
    with pytest.raises(error):
        runs.settle(run.id, str(task), happened=True, by=people.starter, **columns)
    run.refresh_from_db()
    assert run.status == Status.UNKNOWN


def test_one_of_two_claims_proceeds_and_the_other_writes_nothing(
    tmp_path: Path,
) -> None:
    run = runs.start("effects", {"folder": str(tmp_path)})
    assert leases.claim_one(run.id) is not None
    assert leases.claim_one(run.id) is None


def test_a_worker_that_lost_its_lease_can_save_nothing(tmp_path: Path) -> None:
    run = runs.start("effects", {"folder": str(tmp_path)})
    frozen = held(run)
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    before = Checkpoint.objects.filter(run=run).count(), len(log(run))
    with pytest.raises(StaleLease):
        ledger.append_events(frozen, [NewEvent("warning")])
    with pytest.raises(StaleLease):
        journal.write_results(frozen, [journal.Ending(Task("pay", 1), 1, "done", {})])
    assert (Checkpoint.objects.filter(run=run).count(), len(log(run))) == before
    assert LateResult.objects.filter(run=run).count() == 1, "kept as evidence"
    assert not leases.heartbeat(frozen.id, frozen.epoch)
    assert not leases.give_back(frozen.id, frozen.epoch)


def test_a_run_that_gets_no_further_stops_as_poison_and_a_person_may_let_it_try_again(
    tmp_path: Path,
) -> None:
    run = runs.start("effects", {"folder": str(tmp_path)})
    for _ in range(5):
        held(run)
        Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert run.error_code == "poison"
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
