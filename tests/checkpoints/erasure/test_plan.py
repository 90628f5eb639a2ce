"""Which other runs have the values of one that is erased."""

from pathlib import Path

import pytest
from django.db import transaction

from checkpoints import retention
from checkpoints.core.tombstone import is_tombstone
from checkpoints.erasure.plan import inherited_of
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast
from tests.support.full_installation import a_full_run
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def forked(run: Run, people: cast.People) -> Run:
    """A fork from the beginning that has ended."""
    return runs.cancel(runs.fork(f"{run.key}:initial", by=people.starter).id, by=people.starter)


def told(run: Run) -> set[tuple[str, str]]:
    return {(one.run.key if one.run else str(one.id), one.how) for one in inherited_of(run)}


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
    assert told(first) == {(second.key, "fork"), (third.key, "fork")}
    assert told(second) == {(first.key, "origin"), (third.key, "fork")}
    assert told(third) == {(first.key, "origin"), (second.key, "origin")}
    record = retention.erase(second.id, forks=True, by=people.steward)
    said = {one["key"]: (one["how"], one["erased"]) for one in record.inherited}
    assert said == {first.key: ("origin", False), third.key: ("fork", True)}
    left = [is_tombstone(read_value(Run.objects.get(id=run.id), "input")) for run in family]
    assert left == [False, True, True]
    assert [verify_run(run.id) for run in family] == [[], [], []]


def test_a_parent_and_its_children_know_of_each_other(family: list[Run]) -> None:
    first, second, third = family
    Run.objects.filter(id=second.id).update(parent_run=third.id)
    assert (third.key, "parent") in told(second)
    assert (second.key, "child") in told(third)


def test_the_way_goes_on_behind_a_run_that_is_not_there_any_more(family: list[Run]) -> None:
    first, second, third = family
    with transaction.atomic():
        Run.objects.filter(id=second.id)._raw_delete("default")
        assert told(first) == {(str(second.id), "fork"), (third.key, "fork")}
        assert told(third) == {(str(second.id), "origin"), (first.key, "origin")}
        transaction.set_rollback(True)


def test_it_costs_two_queries_a_generation_and_one(family: list[Run], people: cast.People) -> None:
    with counted() as alone:
        inherited_of(family[0])
    for _ in range(5):
        forked(family[0], people)
    with counted() as beside:
        inherited_of(family[0])
    assert len(alone) == len(beside) == 2 * 3 + 2 + 1
