"""Holds and pins: who said so and why, in a row and in the audit log; and what is
refused.
"""

from uuid import UUID, uuid4

import pytest

from checkpoints import retention
from checkpoints.models import AuditLine, Checkpoint, Job, LegalHold, Pin, Run
from checkpoints.retention import holds
from orchestrator import runs
from orchestrator.engine.errors import InvalidValue, UnknownThing, WrongStatus
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    return runs.advance(started(large("short", "abc")).id)


def kinds_of(run: Run) -> list[str]:
    return list(
        AuditLine.objects.filter(run=run.id)
        .order_by("id")
        .values_list("kind", flat=True)
    )


def test_a_held_run_is_held_until_each_of_its_holds_is_released(
    run: Run, people: cast.People
) -> None:
    first = retention.hold(run.id, "a court asked", by=people.steward)
    second = retention.hold(str(run.id), "and a second one", by=None)
    for hold in (first, second):
        assert retention.is_held([run.id, uuid4()]) == {run.id}
        assert retention.release_hold(hold.id, by=people.steward)
    assert retention.is_held([run.id]) == set()
    assert not retention.release_hold(first.id, by=people.steward)
    assert kinds_of(run) == ["run_held", "run_held", "hold_released", "hold_released"]
    row = LegalHold.objects.get(id=first.id)
    assert row.reason == "a court asked"
    assert row.by == people.steward
    assert row.released_by == people.steward


def test_a_checkpoint_is_pinned_once_and_unpinned_once(
    run: Run, people: cast.People
) -> None:
    chosen = Checkpoint.objects.get(run=run, seq=1)
    first = retention.pin(
        chosen.id, by=people.steward, reason="the one that we discuss"
    )
    assert retention.pin(chosen.id, by=None).id == first.id
    assert retention.unpin(chosen.id, by=people.steward)
    assert not retention.unpin(chosen.id, by=people.steward)
    assert retention.pin(chosen.id, by=None).id != first.id
    assert kinds_of(run) == [
        "checkpoint_pinned",
        "checkpoint_unpinned",
        "checkpoint_pinned",
    ]
    assert Pin.objects.get(id=first.id).reason == "the one that we discuss"


def test_pins_and_holds_are_put_on_and_taken_away_under_the_lock_of_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[UUID] = []
    lock_row = holds._lock_row

    def noted(run: UUID) -> Run | None:
        locked.append(run)
        return lock_row(run)

    monkeypatch.setattr(holds, "_lock_row", noted)
    chosen = Checkpoint.objects.get(run=run, seq=1)
    retention.pin(chosen.id, by=None)
    retention.unpin(chosen.id, by=None)
    held = retention.hold(run.id, "a court asked", by=None)
    retention.release_hold(held.id, by=None)
    assert locked == [run.id] * 4


def test_a_run_of_which_values_are_being_erased_is_not_held_until_that_has_ended(
    run: Run, people: cast.People
) -> None:
    record = retention.begin_erasure(run.id, by=people.steward)
    since = f"{record.at:%Y-%m-%d %H:%M} UTC"
    with pytest.raises(
        WrongStatus, match=f"run {run.key} are being erased since {since}"
    ):
        retention.hold(run.id, "a court asked", by=people.steward)
    assert not LegalHold.objects.exists()
    assert kinds_of(run) == []
    assert kinds.advance(Job.objects.get(kind="erase_run").id).error == ""
    retention.hold(run.id, "a court asked", by=people.steward)
    assert retention.is_held([run.id]) == {run.id}


def test_what_is_not_there_and_what_says_nothing_is_refused(
    run: Run, people: cast.People
) -> None:
    with pytest.raises(UnknownThing):
        retention.hold(uuid4(), "why", by=people.steward)
    with pytest.raises(UnknownThing):
        retention.pin(uuid4(), by=people.steward)
    for reason in ("", "x" * 1001, "\x00"):
        with pytest.raises(InvalidValue):
            retention.hold(run.id, reason, by=people.steward)
    assert not LegalHold.objects.exists()
    assert not AuditLine.objects.filter(run=run.id).exists()
