"""The work on a run is aborted at every statement and every commit; what comes out is
what comes out uncrashed.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from orchestrator.engine import registry
from orchestrator.engine.graphs import reducer as reducers
from tests.crash import scenarios
from tests.crash.abort import Points
from tests.crash.journey import journey, journey_hash
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.support import cast, run_actions

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # The abort ends the threads of whoever died as well, as it should.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
STEP = int(os.environ.get("COUNTERSIGN_SWEEP_STEP", "39"))
"""Every n-th moment is tried; 1 tries all of them (`make sweep`)."""
FIRST = STEP // 2 if connection.vendor == "postgresql" else 0
"""The databases take turns."""
FEWEST = 20
MOST = 600
"""Moments of one scenario: fewer means that something is not seen, more that a run is
not bounded.
"""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_that_is_aborted_at_any_statement_or_commit_comes_to_the_same_end(
    name: str, tmp_path: Path, people: cast.People, configure: Any, quick: None
) -> None:
    scenario = SCENARIOS[name]
    configure(**scenario.settings)
    moments, tried = _sweep(scenario, run_actions.reviewer(people.reviewer), tmp_path)
    print(f"{name}: {moments} moments, {tried} tried")
    assert FEWEST < moments < MOST
    assert tried * STEP > 0.7 * moments, "the crashes did not reach the end of the run"


def _sweep(scenario: Scenario, by: User, folder: Path) -> tuple[int, int]:
    """Return how many moments the uncrashed run has, and at how many a crash was tried,
    until one fell behind the end.
    """
    scenarios.live(
        scenario, by=by, folder=folder, trouble=Points()
    )  # what a process does only once
    points = Points()
    wanted = scenarios.live(scenario, by=by, folder=folder, trouble=points)
    scenarios.nothing_is_lost_or_doubled(scenario, wanted, folder)
    expected = journey(wanted)
    hashed = journey_hash(wanted)
    for tried, at in enumerate(itertools.count(FIRST, STEP)):
        crash = Points(at)
        crashed = scenarios.live(scenario, by=by, folder=folder, trouble=crash)
        if not crash.fired:
            return points.seen, tried
        assert journey_hash(crashed) == hashed, (
            at,
            crash.fired,
            journey(crashed),
            expected,
        )
        scenarios.nothing_is_lost_or_doubled(scenario, crashed, folder)
    raise AssertionError


def test_the_parallel_scenario_writes_to_a_channel_of_each_reducer_there_is() -> None:
    built_in = {
        reducer.name
        for reducer in vars(reducers).values()
        if isinstance(reducer, reducers.Reducer)
    }
    channels = registry.current(
        SCENARIOS["parallel with each reducer"].graph
    ).channels.values()
    assert built_in - {channel.reducer.name for channel in channels} == set()
    own = [
        channel.reducer
        for channel in channels
        if isinstance(channel.reducer, reducers.Custom)
    ]
    assert {reducer.commutes for reducer in own} == {True, False}
