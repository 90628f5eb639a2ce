"""Runs that inherited values: named in the record, left as they are, or erased along,
all of them or none.
"""

from typing import Any

import pytest

from checkpoints import retention, timeline, verification
from checkpoints.core.tombstone import is_tombstone
from checkpoints.erasure import request
from checkpoints.models import ErasureRecord, Run
from orchestrator import runs
from orchestrator.engine.errors import WrongStatus
from tests.support import cast
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)


def faults(run: Run) -> list[str]:
    return [fault.reason for fault in verification.verify_run(run.id)]


def test_runs_that_inherited_values_are_named_and_load_as_before(
    run: Run, people: cast.People
) -> None:
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    runs.cancel(fork.id, by=people.starter)
    before = [timeline.state_at(row.id) for row in timeline.list_checkpoints(fork.id)]
    record = retention.erase(run.id, by=people.steward)
    heir = {"run": str(fork.id), "key": fork.key, "how": "fork", "erased": False}
    assert record.inherited == [heir]
    assert [
        timeline.state_at(row.id) for row in timeline.list_checkpoints(fork.id)
    ] == before
    assert faults(run) == []
    assert faults(fork) == []


def test_runs_that_inherited_values_are_erased_too_if_that_is_asked(
    run: Run, people: cast.People
) -> None:
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    with pytest.raises(WrongStatus):
        retention.erase(run.id, forks=True, by=people.steward)
    assert not ErasureRecord.objects.exists()
    runs.cancel(fork.id, by=people.starter)
    record = retention.erase(run.id, forks=True, by=people.steward)
    assert [entry["erased"] for entry in record.inherited] == [True]
    for each_run in (run, fork):
        assert faults(each_run) == []
        state = timeline.state_at(timeline.list_checkpoints(each_run.id)[0].id)
        assert all(
            value is None or is_tombstone(value) for value in state["scratch"].values()
        )


def test_a_fork_under_a_hold_that_would_be_erased_too_leaves_all_as_they_are(
    run: Run, people: cast.People
) -> None:
    fork = runs.cancel(
        runs.fork(f"{run.key}:initial", by=people.starter).id, by=people.starter
    )
    hold = retention.hold(fork.id, "a court asked", by=people.steward)
    before = contents()
    acts: list[Any] = [retention.erase, retention.begin_erasure]
    for act_on in (
        *acts,
        lambda run, forks, by: retention.plan_erasure(run, forks=forks),
    ):
        with pytest.raises(WrongStatus, match=f"run {fork.key} is under a legal hold"):
            act_on(run.id, forks=True, by=people.steward)
    assert contents() == before
    retention.release_hold(hold.id, by=people.steward)
    retention.erase(run.id, forks=True, by=people.steward)
    assert not Run.objects.filter(erasure=None).exists()


@pytest.mark.parametrize("of", ["the run", "its fork"])
def test_a_fork_that_is_made_while_the_runs_are_taken_leaves_all_as_they_are(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    fork = runs.cancel(
        runs.fork(f"{run.key}:initial", by=people.starter).id, by=people.starter
    )
    begin = request._begin
    runs_made = list[Run]()

    def late(item: Any, *args: Any, **kwargs: Any) -> ErasureRecord:
        if of == "the run" and not runs_made:
            runs_made.append(runs.fork(f"{run.key}:initial", by=people.starter))
        record = begin(item, *args, **kwargs)
        if not runs_made:
            runs_made.append(runs.fork(f"{fork.key}:initial", by=people.starter))
        return record

    monkeypatch.setattr(request, "_begin", late)
    with pytest.raises(WrongStatus, match="was forked just now"):
        retention.erase(run.id, forks=True, by=people.steward)
    assert len(runs_made) == 1
    assert not ErasureRecord.objects.exists()
    assert not Run.objects.exclude(erasure=None).exists()
    monkeypatch.undo()
    for late_fork in Run.objects.filter(origin_checkpoint__isnull=False).exclude(
        id=fork.id
    ):
        runs.cancel(late_fork.id, by=people.starter)
    retention.erase(run.id, forks=True, by=people.steward)
    assert not Run.objects.filter(erasure=None).exists()
