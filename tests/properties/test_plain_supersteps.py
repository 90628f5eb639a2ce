"""A superstep that writes its checkpoint alone is built without looking at what may be
written beside it, and a graph that keeps every row without asking its policy. Both
shorter ways write what the long one does.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
from django.contrib.auth.models import User
from hypothesis import event, given, seed
from hypothesis import strategies as st

from orchestrator.engine import Graph, Interval
from orchestrator.execution import commit
from orchestrator.execution.open_superstep import FinishedTask
from orchestrator.execution.session import Session, SuperstepResult
from tests.engine.random_graphs import graphs
from tests.engine.reference import Spec
from tests.properties.drawing import SEED, drawn
from tests.properties.gated import built, decider
from tests.properties.played import as_run

pytestmark = pytest.mark.django_db(transaction=True)
POLICIES: list[str | Interval] = [
    "every_node",
    "every_node",
    "explicit",
    "none",
    "manual",
    Interval(2),
]
SETTINGS = [None, None, None, None, "before", "after", "both"]


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the graphs name."""
    return User.objects.create(username="ann")


def _with_policy(graph: Graph, dice: Random) -> Graph:
    """The same graph with a policy of checkpoints, and with settings at some nodes."""
    graph.checkpoints = dice.choice(POLICIES)
    if dice.random() < 0.5:
        graph.nodes[:] = [
            replace(node, checkpoint=dice.choice(SETTINGS)) for node in graph.nodes
        ]
    return graph


@contextmanager
def _without_shorter_ways(session: Session) -> Iterator[None]:
    kept = session.graph.keeps_every_row
    session.graph.__dict__["keeps_every_row"] = False
    never = PropertyMock(return_value=False)
    try:
        with patch.object(FinishedTask, "is_plain", never):
            yield
    finally:
        session.graph.__dict__["keeps_every_row"] = kept


@contextmanager
def _built_twice() -> Iterator[Counter[str]]:
    """Build the commit of each superstep both ways, and compare them; counts them."""
    assemble = commit._assemble
    counted: Counter[str] = Counter()

    def assembled(session: Session, worked: SuperstepResult) -> Any:
        with _without_shorter_ways(session):
            long = assemble(session, worked)
        short = assemble(session, worked)
        counted["supersteps"] += 1
        counted["of graphs that keep all"] += session.graph.keeps_every_row
        assert long.checkpoint == short.checkpoint
        assert long.run_update == short.run_update
        assert long.after == short.after
        assert long.decided == short.decided
        assert long.rebases == short.rebases
        if commit._writes_checkpoint_alone(session, worked):
            counted["plain"] += 1
            assert long.inside is None
            assert long.events == short.events
            assert (long.listing is None) == (short.listing is None)
        return short

    with patch.object(commit, "_assemble", assembled):
        yield counted


@seed(SEED)
@drawn(many=30)
@given(graphs(), st.integers(0, 2**32))
def test_the_shorter_ways_write_what_the_long_one_does(
    ann: User, made: tuple[list[Spec], list[str]], dice: int
) -> None:
    graph = _with_policy(built(*made, dice), Random(f"{dice}/checkpoints"))
    with _built_twice() as counted:
        as_run(graph, decider(dice), by=ann)
    for name in ("plain", "of graphs that keep all"):
        event(f"{name}: {counted[name] > 0}")
