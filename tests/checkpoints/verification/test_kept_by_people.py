"""Holds, pins and policies that were changed by SQL are named, and nothing is removed
or erased because of it.
"""

from typing import Any

import pytest
from django.utils import timezone

from checkpoints import retention
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    LegalHold,
    Pin,
    RetentionPolicy,
    Run,
)
from checkpoints.verification import verify_run
from checkpoints.verification.kept_by_people import kept_in_installation
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, WrongStatus
from orchestrator.jobs import kinds
from tests.support import api_graphs, forging, histories
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: People) -> Run:
    """A run that has ended."""
    api_graphs.register()
    other_run = runs.advance(
        runs.start("gated", {"claim_id": "C"}, key="C", by=people.starter).id
    )
    return runs.cancel(other_run.id, by=people.starter)


@pytest.fixture
def hold(run: Run, people: People) -> LegalHold:
    return retention.hold(run.id, "a court asked", by=people.steward)


@pytest.fixture
def pin(run: Run, people: People) -> Pin:
    return retention.pin(Checkpoint.objects.get(run=run, seq=0).id, by=people.steward)


def _named(run: Run) -> list[str]:
    return [fault.reason for fault in verify_run(run.id)]


def test_what_people_made_and_ended_verifies(
    run: Run, hold: LegalHold, pin: Pin, people: People
) -> None:
    assert _named(run) == []
    retention.release_hold(hold.id, by=people.steward)
    retention.unpin(pin.checkpoint, by=people.steward)
    retention.pin(pin.checkpoint, by=people.steward)
    assert _named(run) == []
    assert list(kept_in_installation()) == []


RELEASED = {"released_at": timezone.now()}


@pytest.mark.parametrize(
    "change", [RELEASED, {"reason": "another"}, {"run": Run().id}, {"by": None}]
)
def test_a_hold_that_was_changed_is_named(
    run: Run, hold: LegalHold, change: dict[str, Any]
) -> None:
    forging.tamper(hold, **change)
    assert _named(run) or "run" in change
    assert list(kept_in_installation())


@pytest.mark.parametrize("change", [RELEASED, {"reason": "another"}, {"seal": b""}])
def test_a_pin_that_was_changed_is_named(
    run: Run, pin: Pin, change: dict[str, Any]
) -> None:
    forging.tamper(pin, **change)
    assert _named(run)
    assert list(kept_in_installation())


def test_a_hold_that_is_gone_is_named(run: Run, hold: LegalHold) -> None:
    forging.remove(hold)
    reason = (
        f"checkpoints_legalhold {hold.id} of run {run.id} is gone, though the"
        " audit log says that it was made"
    )
    assert reason in _named(run)


def test_a_pin_that_is_gone_is_named(run: Run, pin: Pin) -> None:
    forging.remove(pin)
    assert any(
        "is gone, though the audit log says that it was made" in reason
        for reason in _named(run)
    )


def test_a_sealed_hold_that_was_put_back_as_it_was_before_its_end_is_named(
    run: Run, hold: LegalHold, people: People
) -> None:
    before = LegalHold.objects.values().get()
    retention.release_hold(hold.id, by=people.steward)
    forging.tamper(hold, **before)
    assert any(
        "lasts, though the audit log says that it was ended" in reason
        for reason in _named(run)
    )


def test_a_hold_of_a_run_that_is_gone_is_still_compared(
    run: Run, hold: LegalHold
) -> None:
    forging.remove(hold)
    AuditLine.objects.exclude(kind="run_held")
    assert [fault.run for fault in kept_in_installation()] == [str(run.id)]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_hold_that_was_released_by_sql_still_keeps_its_run_from_erasure(
    run: Run, hold: LegalHold, people: People, deleted: bool
) -> None:
    if deleted:
        forging.remove(hold)
    else:
        forging.tamper(hold, **RELEASED)
    with pytest.raises(WrongStatus, match="legal hold"):
        retention.erase(run.id, by=people.steward)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_hold_that_was_released_by_sql_still_keeps_its_run_from_removal(
    run: Run, hold: LegalHold, deleted: bool
) -> None:
    if deleted:
        forging.remove(hold)
    else:
        forging.tamper(hold, **RELEASED)
    policy = histories.policy("gated", remove_runs_after_days={"cancelled": 0})
    histories.pruned(policy)
    assert Run.objects.filter(id=run.id).exists()


def test_a_hold_that_was_changed_is_not_released(
    hold: LegalHold, people: People
) -> None:
    forging.tamper(hold, reason="another")
    with pytest.raises(TamperedRow):
        retention.release_hold(hold.id, by=people.steward)
    assert LegalHold.objects.get().released_at is None


CHANGES = [
    {"keep_last": 0},
    {"max_age_days": {"cancelled": 0}},
    {"archive": True},
    {"seal": b""},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_policy_that_was_changed_is_named_and_removes_nothing(
    run: Run, change: dict[str, Any]
) -> None:
    policy = histories.policy("gated", keep_last=100)
    forging.tamper(policy, **change)
    policy.refresh_from_db()
    assert [fault.table for fault in kept_in_installation()] == [
        "checkpoints_retentionpolicy"
    ]
    with pytest.raises(TamperedRow, match="save the policy of gated anew"):
        retention.prune(policy, by=None)


def test_a_policy_that_was_changed_stops_a_removal_that_was_queued_before(
    run: Run,
) -> None:
    policy = histories.policy("gated", keep_last=0)
    job = retention.prune(policy, by=None)
    forging.tamper(policy, keep_last=100)
    done = kinds.advance(job.id)
    assert done.error_code == "tampered_row"


def test_a_policy_that_is_gone_is_named(run: Run) -> None:
    policy = histories.policy("gated", keep_last=100)
    forging.remove(policy)
    [fault] = kept_in_installation()
    assert (
        fault.reason
        == "checkpoints_retentionpolicy gated is gone, though nobody deleted it"
    )


def test_a_policy_that_was_put_in_is_named() -> None:
    RetentionPolicy.objects.create(graph="gated", keep_last=0)
    assert [fault.table for fault in kept_in_installation()] == [
        "checkpoints_retentionpolicy"
    ]


def test_a_policy_of_an_earlier_time_that_was_put_back_is_named(run: Run) -> None:
    histories.policy("gated", keep_last=1)
    before = RetentionPolicy.objects.values().get()
    policy = histories.policy("gated", keep_last=100)
    forging.tamper(policy, **before)
    [fault] = kept_in_installation()
    assert (
        fault.reason
        == "checkpoints_retentionpolicy gated is another policy than the audit log tells of"
    )


def test_a_policy_that_was_deleted_or_given_to_another_graph_verifies(
    run: Run, people: People
) -> None:
    policy = histories.policy("gated", keep_last=1)
    policy.graph = "slow"
    retention.save_policy(policy, by=people.steward)
    assert list(kept_in_installation()) == []
    retention.delete_policy(policy, by=people.steward)
    assert list(kept_in_installation()) == []
