"""Starting for a person: what somebody else does between two looks tells him nothing that is not his to know."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import KeyConflict
from orchestrator.runs import start_for_user
from orchestrator.runs.start_for_user import start_for
from tests.support import cast
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch, people: cast.People) -> list[Run]:
    """The run that Olive starts with the same key, after the first look of whoever starts and before he starts."""
    made, found = graph("started-between-two-looks"), list[Run]()
    made.node("work")(lambda state, ctx: None)
    made.edge(START, "work")
    made.edge("work", END)
    registered(made)
    start = start_for_user.start_or_find

    def late(asked: Any) -> Any:
        found.append(runs.start(asked.graph, asked.input, key=asked.key, by=people.starter))
        return start(asked)

    monkeypatch.setattr(start_for_user, "start_or_find", late)
    people.second_reviewer.user_permissions.add(Permission.objects.get(codename="start_run"))
    return found


def test_a_run_that_a_stranger_started_between_the_two_looks_is_a_conflict_without_facts(
    between: list[Run], people: cast.People
) -> None:
    asked = runs.StartRequest("started-between-two-looks", {}, "once", by=people.second_reviewer)
    with pytest.raises(KeyConflict) as refused:
        start_for(asked)
    assert (refused.value.message, refused.value.facts) == ("this key is taken", {})
    assert Run.objects.count() == 1


def test_a_run_that_oneself_started_between_the_two_looks_is_found(between: list[Run], people: cast.People) -> None:
    asked = runs.StartRequest("started-between-two-looks", {}, "once", by=people.starter)
    assert start_for(asked) == (between[0], False)
