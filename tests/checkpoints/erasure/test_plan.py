"""Which other runs have the values of one that is erased."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction

from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.core.tombstone import is_tombstone
from checkpoints.erasure.plan import inherited_of
from checkpoints.models import ErasureRecord, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import WrongStatus
from tests.support import cast
from tests.support.full_installation import a_full_run
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def forked(run: Run, people: cast.People) -> Run:
    """A fork from the beginning that has ended."""
    return runs.cancel(
        runs.fork(f"{run.key}:initial", by=people.starter).id, by=people.starter
    )


def relatives(run: Run) -> set[tuple[str, str]]:
    return {
        (relative.run.key if relative.run else str(relative.id), relative.how)
        for relative in inherited_of(run)
    }


@pytest.fixture
def family(people: cast.People, tmp_path: Path) -> list[Run]:
    """A run, a fork of it, and a fork of that."""
    first = a_full_run(tmp_path, people.reviewer)
    second = forked(first, people)
    return [first, second, forked(second, people)]


def test_origins_are_named_as_having_the_values_too_and_are_not_erased_along(
    family: list[Run], people: cast.People
) -> None:
    first, second, third = family
    assert relatives(first) == {(second.key, "fork"), (third.key, "fork")}
    assert relatives(second) == {(first.key, "origin"), (third.key, "fork")}
    assert relatives(third) == {(first.key, "origin"), (second.key, "origin")}
    record = retention.erase(second.id, forks=True, by=people.steward)
    statement = {
        entry["key"]: (entry["how"], entry["erased"]) for entry in record.inherited
    }
    assert statement == {first.key: ("origin", False), third.key: ("fork", True)}
    left = [
        is_tombstone(read_value(Run.objects.get(id=run.id), "input")) for run in family
    ]
    assert left == [False, True, True]
    assert [verify_run(run.id) for run in family] == [[], [], []]


def test_a_parent_and_its_children_know_of_each_other(family: list[Run]) -> None:
    first, second, third = family
    Run.objects.filter(id=second.id).update(parent_run=third.id)
    assert (third.key, "parent") in relatives(second)
    assert (second.key, "child") in relatives(third)


def test_the_way_goes_on_behind_a_run_that_is_not_there_any_more(
    family: list[Run],
) -> None:
    first, second, third = family
    with transaction.atomic():
        Run.objects.filter(id=second.id)._raw_delete("default")
        assert relatives(first) == {(str(second.id), "fork"), (third.key, "fork")}
        assert relatives(third) == {(str(second.id), "origin"), (first.key, "origin")}
        transaction.set_rollback(True)


def test_it_costs_four_queries_a_generation_and_one(
    family: list[Run], people: cast.People
) -> None:
    with counted() as alone:
        inherited_of(family[0])
    for _ in range(5):
        forked(family[0], people)
    with counted() as beside:
        inherited_of(family[0])
    assert len(alone) == len(beside) == 4 * 3 + 3 + 1


def test_a_plan_with_forks_refuses_what_the_erasure_would_refuse_and_says_what_goes_with_it(
    run: Run, people: cast.People
) -> None:
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    assert retention.plan_erasure(run.id).json()["inherited"][0]["erased"] is False
    with pytest.raises(
        WrongStatus, match=f"run {fork.key} is queued and can still go on"
    ):
        retention.plan_erasure(run.id, forks=True)
    runs.cancel(fork.id, by=people.starter)
    heir = {"run": str(fork.id), "key": fork.key, "how": "fork", "erased": True}
    assert retention.plan_erasure(run.id, forks=True).json()["inherited"] == [heir]
    out = StringIO()
    call_command("erase", run.key, dry_run=True, forks=True, stdout=out)
    assert (
        f"\n  fork {fork.key} has values of it: would be erased too\n" in out.getvalue()
    )
    assert f"{run.key}: would erase checkpoints" in out.getvalue()
    call_command("erase", run.key, dry_run=True, paths=["input.number"], stdout=out)
    assert f"{run.key}: would look for it in checkpoints" in out.getvalue()
    assert not ErasureRecord.objects.exists()
    call_command("erase", run.key, forks=True, stdout=out)
    assert f"\n  fork {fork.key} has values of it: erased too\n" in out.getvalue()


def test_a_tampered_run_says_what_to_do_first(run: Run) -> None:
    Run.objects.filter(id=run.id).update(status=Status.TAMPERED)
    with pytest.raises(WrongStatus, match="is tampered; put back what was changed"):
        retention.plan_erasure(run.id)
