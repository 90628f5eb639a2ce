"""How long people have where the moment that terms name has passed."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from tests.support import cast
from tests.support.deadlines import HOUR
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _until(asked: dict[str, Any]) -> Graph:
    flow = graph("until-a-moment")
    gate = Gate(reviewers=["group:claims"], terms=lambda input: asked)
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"total": 7})
    flow.edge(START, "first")
    flow.edge("first", "propose")
    flow.edge("propose", END)
    return flow


def _time_given(run: Run) -> timedelta:
    """Return how long the newest request of a run gives people."""
    request = ApprovalRequest.objects.filter(run=run).latest("opened_at")
    assert request.deadline is not None
    return request.deadline - request.opened_at


@pytest.mark.parametrize("place", ["initial", "step-1", "step-2"])
def test_who_is_asked_again_after_the_moment_has_as_long_as_at_first(
    people: cast.People, place: str
) -> None:
    asked = {"deadline": timezone.now() + HOUR}
    run = advanced(_until(asked))
    assert HOUR / 2 < _time_given(run) <= HOUR
    # As if two hours had passed.
    asked["deadline"] -= 2 * HOUR
    steward = people.steward
    forked = runs.fork(f"{run.key}:{place}", by=steward)
    rewound = runs.rewind(run.id, f"{run.key}:{place}", by=steward)
    for again in (forked, rewound):
        again = runs.advance(again.id)
        assert again.status == "paused"
        assert HOUR / 2 < _time_given(again) <= HOUR
        assert verify_run(again.id) == []
    twice = runs.advance(runs.fork(f"{forked.key}:initial", by=steward).id)
    assert HOUR / 2 < _time_given(twice) <= HOUR


def test_who_is_asked_first_after_the_moment_is_too_late() -> None:
    run = advanced(_until({"deadline": timezone.now() - HOUR}))
    assert _time_given(run) < timedelta(seconds=30)
