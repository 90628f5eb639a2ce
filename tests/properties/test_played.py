"""What `play` says of a graph is what a run of it does: in examples, and in random
graphs with random decisions.
"""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import assume, event, given, seed
from hypothesis import strategies as st

from orchestrator.engine import play
from tests.engine import waiting
from tests.engine.random_graphs import graphs
from tests.engine.reference import Spec
from tests.properties.drawing import MOST_TASKS, SEED, drawn
from tests.properties.gated import built, decider
from tests.properties.played import as_played, as_run

pytestmark = pytest.mark.django_db(transaction=True)
GATED = graphs().filter(lambda made: any(spec.gated for spec in made[0]))
SHARE = 3 if connection.vendor == "postgresql" else 1


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the graphs name."""
    return User.objects.create(username="ann")


@pytest.mark.parametrize(
    "example", waiting.EXAMPLES, ids=lambda example: example.__name__
)
def test_an_example_is_played_as_it_runs(
    example: Callable[[], waiting.Example], ann: User
) -> None:
    played = as_played(*example())
    real = as_run(*example(), by=ann)
    assert played.asked == real.asked
    assert played.rounds == real.rounds
    assert played == real


@seed(SEED)
@drawn(SHARE)
@given(GATED, st.integers(0, 2**32))
def test_a_random_graph_is_played_as_it_runs(
    ann: User, made: tuple[list[Spec], list[str]], dice: int
) -> None:
    specs, starts = made
    graph = built(specs, starts, dice)
    tasks = [
        task
        for superstep in play(graph, {}, decisions=decider(dice)).supersteps
        for task in superstep.tasks
    ]
    assume(1 < len(tasks) <= MOST_TASKS)
    played = as_played(graph, decider(dice))
    real = as_run(built(specs, starts, dice), decider(dice), by=ann)
    event(played.status)
    assert played.asked == real.asked
    assert played.rounds == real.rounds
    assert played.status == real.status
    assert played.state == real.state
    assert played.gates == real.gates
    assert played.memory == real.memory
