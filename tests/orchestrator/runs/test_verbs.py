"""Starting with a key: once, whoever else starts it at the same moment."""

from typing import Any

import pytest
from django.db import transaction

from checkpoints.models import Run, RunEvent
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import KeyConflict
from orchestrator.runs.start_for_user import start_for
from tests.races.meeting import Thread
from tests.support import cast
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def simple() -> str:
    flow = graph("started-with-a-key")

    @flow.node()
    def work(state: Any, ctx: Any) -> None:
        pass

    flow.edge(START, "work")
    flow.edge("work", END)
    return registered(flow).name


def test_only_one_of_many_starts_with_one_key_makes_the_run_inside_callers_transactions(
    simple: str,
) -> None:
    def start() -> Run:
        with transaction.atomic():
            run = runs.start(simple, {}, key="once")
            assert Run.objects.filter(key="once").exists(), (
                "the caller's transaction goes on"
            )
            return run

    for _ in range(5):
        ids = {thread.outcome().id for thread in [Thread(start) for _ in range(6)]}
        assert len(ids) == 1
    assert RunEvent.objects.count() == 1


def test_a_key_of_a_run_that_one_may_not_see_is_a_conflict_without_facts(
    simple: str, people: cast.People
) -> None:
    run = runs.start(simple, {}, key="mine", by=people.starter)
    people.second_reviewer.user_permissions.add(*_may_start())
    with pytest.raises(KeyConflict) as refused:
        start_for(runs.StartRequest(simple, {}, "mine", by=people.second_reviewer))
    assert str(run.id) not in str(refused.value.facts)


def _may_start() -> list[Any]:
    from django.contrib.auth.models import Permission

    return list(Permission.objects.filter(codename="start_run"))
