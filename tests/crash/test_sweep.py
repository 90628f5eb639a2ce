"""The work on a run is aborted at every statement and every commit; what comes out is what comes out uncrashed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from checkpoints import leases
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from orchestrator import runner, runs
from orchestrator.demo.claims.models import ClaimCase
from tests import cast
from tests.crash import graphs
from tests.crash.abort import Points
from tests.crash.journey import journey, journey_hash
from tests.processes import calls
from tests.runner import desk

pytestmark = pytest.mark.django_db(transaction=True)
STEP = int(os.environ.get("COUNTERSIGN_SWEEP_STEP", "5"))
"""Every n-th moment is tried; 1 tries all of them (`make sweep`)."""


@dataclass(frozen=True)
class Scenario:
    """A graph, and what people do whenever the run rests, until it ends."""

    graph: str
    people: Callable[[Run, User], bool] = lambda run, by: False


def _approve_all(run: Run, by: User) -> bool:
    """Approve what is open. Whether there was something."""
    if run.status != Status.PAUSED:
        return False
    desk.sign_open(run, by, "approve")
    return True


def _one_gate_at_a_time(run: Run, by: User) -> bool:
    if run.status != Status.PAUSED:
        return False
    desk.sign_open(run, by, "approve", requests=1)
    return True


def _mend_and_resume(run: Run, by: User) -> bool:
    if run.status != Status.FAILED:
        return False
    graphs.BROKEN.clear()
    runs.resume(run.id, by=by)
    return True


def _settle(run: Run, by: User) -> bool:
    """Look outside, and say what is true there."""
    if run.status != Status.UNKNOWN:
        return False
    folder = Path(runs.input_of(run)["folder"])
    happened = bool(calls(folder, "letter"))
    TaskResult.objects.filter(run=run).update(over_at="2000-01-01T00:00Z")
    runs.settle(
        run.id,
        "letter:1:0",
        happened=happened,
        output={"notes": ["letter"]} if happened else None,
        accept_risk=True,
        by=by,
        reason="looked",
    )
    return True


SCENARIOS = {
    "linear": Scenario("c_linear"),
    "branch": Scenario("c_branch"),
    "loop": Scenario("c_loop"),
    "parallel": Scenario("c_parallel"),
    "fan-out": Scenario("c_fan_out"),
    "effects": Scenario("c_effects", _settle),
    "atomic": Scenario("c_atomic"),
    "recovery points": Scenario("c_recovery"),
    "gate": Scenario("c_gate", _approve_all),
    "gate beside a branch": Scenario("c_beside", _approve_all),
    "two gates one by one": Scenario("c_two_gates", _one_gate_at_a_time),
    "two gates at once": Scenario("c_two_gates", _approve_all),
    "failure": Scenario("c_failure", _mend_and_resume),
    "error edge": Scenario("c_error_edge"),
}


@pytest.fixture(autouse=True)
def _whole() -> Iterator[None]:
    yield
    graphs.BROKEN.clear()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_that_is_aborted_at_any_statement_or_commit_comes_to_the_same_end(
    name: str, tmp_path: Path, people: cast.People
) -> None:
    scenario, rita = SCENARIOS[name], desk.reviewer(people.reviewer)
    wanted, moments = _journey(scenario, rita, tmp_path / "whole", at=None)
    assert moments > 10
    for at in range(0, moments, STEP):
        crashed, _ = _journey(scenario, rita, tmp_path / str(at), at=at)
        assert journey_hash(crashed) == journey_hash(wanted), (at, journey(crashed), journey(wanted))
        _outside_is_right(scenario, tmp_path / str(at))


def _journey(scenario: Scenario, by: User, folder: Path, *, at: int | None) -> tuple[Run, int]:
    """The run from its start to its end, aborted once at moment `at`."""
    folder.mkdir()
    graphs.BROKEN.add("fragile")
    run = runs.start(scenario.graph, {"folder": str(folder)})
    points = Points(at)
    for _ in range(30):
        _work(run, points)
        run.refresh_from_db()
        if run.status not in (Status.QUEUED, Status.RUNNING) and not scenario.people(run, by):
            return run, points.seen
    raise AssertionError(f"the run does not end: {run.status} at {run.at_node}")


def _work(run: Run, points: Points) -> None:
    """One claim's work; what it left behind when it was aborted is taken over by the next."""
    Run.objects.filter(id=run.id, status=Status.RUNNING).update(lease_until="2000-01-01T00:00Z")
    claim = leases.claim_one(run.id)
    if claim:
        with points.watching():
            runner.work(claim.id, claim.epoch)


def _outside_is_right(scenario: Scenario, folder: Path) -> None:
    """One letter, payments under one key only, and atomic work once."""
    if scenario.graph == "c_effects":
        assert len(calls(folder, "letter")) == 1
        assert len(set(calls(folder, "paid"))) == 1
    if scenario.graph == "c_atomic":
        assert set(ClaimCase.objects.values_list("changes", flat=True)) == {1}
