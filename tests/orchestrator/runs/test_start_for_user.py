"""Starting for a person: what somebody else does between two looks tells him nothing
that is not his to know.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from checkpoints.models import AuditLine, Run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import Forbidden, KeyConflict
from orchestrator.runs import start_for_user
from orchestrator.runs.start_for_user import require, start_for
from orchestrator.runs.verbs import Again
from tests.support import cast
from tests.support.chain import join_in_a_row
from tests.support.rows import missing
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch, people: cast.People) -> list[Run]:
    """The run that Olive starts with the same key, after the first look of whoever
    starts and before he starts.
    """
    flow = graph("started-between-two-looks")
    collected = list[Run]()
    flow.node("work")(lambda state, ctx: None)
    flow.edge(START, "work")
    flow.edge("work", END)
    registered(flow)
    start = start_for_user.start_or_find

    def late(asked: Any) -> Any:
        collected.append(
            runs.start(asked.graph, asked.input, key=asked.key, by=people.starter)
        )
        return start(asked)

    monkeypatch.setattr(start_for_user, "start_or_find", late)
    people.second_reviewer.user_permissions.add(
        Permission.objects.get(codename="start_run")
    )
    return collected


def test_a_run_that_a_stranger_started_between_the_two_looks_is_a_conflict_without_facts(
    between: list[Run], people: cast.People
) -> None:
    start_request = runs.StartRequest(
        "started-between-two-looks", {}, "once", by=people.second_reviewer
    )
    with pytest.raises(KeyConflict) as refused:
        start_for(start_request)
    assert refused.value.message == "this key is taken"
    assert refused.value.facts == {}
    assert Run.objects.count() == 1


def test_a_run_that_oneself_started_between_the_two_looks_is_found(
    between: list[Run], people: cast.People
) -> None:
    start_request = runs.StartRequest(
        "started-between-two-looks", {}, "once", by=people.starter
    )
    assert start_for(start_request) == (between[0], False)


def test_whoever_lacks_a_right_is_refused_with_a_line_that_names_it(
    people: cast.People,
) -> None:
    flow = graph("not-for-everybody")
    flow.node("work")(lambda state, ctx: None)
    join_in_a_row(flow, "work")
    registered(flow)
    for person, right, again in (
        (people.nobody, "start_run", Again()),
        (people.reviewer, "start_run", Again(resume_failed=True)),
        (_starter(people), "steer_run", Again(resume_failed=True)),
        (_starter(people), "steer_run", Again(restart=True)),
    ):
        with pytest.raises(Forbidden) as refused:
            start_for(
                runs.StartRequest(
                    "not-for-everybody", {}, "once", by=person, again=again
                )
            )
        line = AuditLine.objects.latest("id")
        assert line.kind == "refused_right"
        assert line.actor == person
        assert line.run is None
        assert line.facts == {"right": right}
        assert refused.value.facts == {"right": right}
    assert Run.objects.count() == 0


def test_who_may_do_it_leaves_no_line_of_a_refusal_and_a_line_names_the_run(
    people: cast.People,
) -> None:
    require(people.starter, "steer_run", run=missing())
    assert not AuditLine.objects.exists()
    with pytest.raises(Forbidden):
        require(people.auditor, "steer_run", run=(run := missing()))
    assert AuditLine.objects.get().run == run


def _starter(people: cast.People) -> Any:
    """Return a person who may start runs, and steer none."""
    people.second_reviewer.user_permissions.add(
        Permission.objects.get(codename="start_run")
    )
    return type(people.second_reviewer).objects.get(pk=people.second_reviewer.pk)
