"""Random graphs with random effects, decisions and crashes: what is recovered is what
would have been.
"""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import assume, given, note, seed
from hypothesis import strategies as st

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.verification import verify_run
from tests.crash import scenarios
from tests.crash.abort import Points
from tests.crash.journey import journey
from tests.crash.lost import Answers
from tests.crash.scenarios import Scenario, Trouble
from tests.engine.random_graphs import graphs, modelled
from tests.engine.reference import Model, Spec
from tests.properties.drawing import (
    CALLED,
    MOST_TASKS,
    SEED,
    counts,
    drawn,
    people,
    registered,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
MADE = graphs().filter(
    lambda made: any(spec.gated for spec in made[0]) or len(made[0]) > 3
)
MOMENTS = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3)
SHARE = 3 if connection.vendor == "postgresql" else 1


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the random graphs name."""
    return User.objects.create(username="ann")


@seed(SEED)
@drawn(SHARE)
@given(MADE, st.integers(0, 2**32), MOMENTS)
def test_a_run_that_is_aborted_anywhere_ends_as_it_would_have(
    tmp_path: Path,
    ann: User,
    quick: None,
    made: tuple[list[Spec], list[str]],
    dice: int,
    moments: list[float],
) -> None:
    whole = Points()
    live = _lived(made, dice, whole, ann, tmp_path)
    crash = Points(*(int(share * whole.seen) for share in moments))
    note(f"aborted at {crash.at} of {whole.seen}")
    recovered = _lived(made, dice, crash, ann, tmp_path)
    # How many results share a commit depends on when they come, so the last moments of
    # one life may be missing in the next; such an example shows nothing and is replaced
    # by another.
    assume(crash.fired)
    _same(live, recovered)


@seed(SEED)
@drawn(SHARE)
@given(MADE, st.integers(0, 2**32), st.floats(0, 1, exclude_max=True))
def test_a_run_of_which_a_commit_was_not_answered_ends_as_it_would_have(
    tmp_path: Path,
    ann: User,
    quick: None,
    made: tuple[list[Spec], list[str]],
    dice: int,
    moment: float,
) -> None:
    whole = Answers()
    live = _lived(made, dice, whole, ann, tmp_path)
    lost = Answers(int(moment * whole.number))
    note(f"answer {lost.at} of {whole.number} was lost")
    recovered = _lived(made, dice, lost, ann, tmp_path)
    note(f"it was of {lost.fired}")
    assume(lost.fired)  # else, as above, its commit is missing in this life
    _same(live, recovered)


def _lived(
    made: tuple[list[Spec], list[str]],
    dice: int,
    trouble: Trouble,
    by: User,
    folder: Path,
) -> Run:
    """A run of the graph from its start to its rest. Graphs whose tasks multiply are
    passed by.
    """
    specs, starts = made
    # The people of these stories decide by themselves, and let no deadline come.
    for spec in specs:
        spec.deadline = ""
    rounds, _, _ = modelled(Model(specs, starts, dice))
    assume(sum(len(tasks) for tasks, *_ in rounds) <= MOST_TASKS)
    registered(specs, starts, dice)
    return scenarios.live(
        Scenario("random", people(dice), input={}),
        by=by,
        folder=folder,
        trouble=trouble,
    )


def _same(live: Run, recovered: Run) -> None:
    """The same journey, the same tasks acted, each once: outside under one key, inside
    exactly once.
    """
    assert journey(recovered) == journey(live)
    assert live.status in (Status.COMPLETED, Status.REJECTED, Status.FAILED)
    tasks: list[Any] = [
        sorted(task for task, _ in CALLED[run.id]) for run in (live, recovered)
    ]
    assert tasks[0] == tasks[1], "an effect was lost, or made under another key"
    assert set(CALLED[live.id].values()) <= {1}
    assert counts(recovered) == counts(live)
    assert set(counts(live).values()) <= {1}
    assert verify_run(recovered.id) == []
