"""What is said of the history of random graphs' runs is what comparing every two
neighbouring states gives.
"""

import copy
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import assume, given, seed
from hypothesis import strategies as st

from checkpoints import timeline
from checkpoints.core.state_paths import parsed_path
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.timeline import Change
from checkpoints.verification import verify_run
from checkpoints.verification.log_fold import document_by_log
from orchestrator import runs
from orchestrator.engine import Interval, play
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.values import canonical
from tests.engine.random_graphs import graphs
from tests.engine.reference import Spec
from tests.properties.drawing import MOST_TASKS, SEED, drawn
from tests.properties.gated import built, decider
from tests.properties.played import as_run
from tests.support import naive_history

pytestmark = pytest.mark.django_db(transaction=True)
SHARE = 3 if connection.vendor == "postgresql" else 1
POLICIES = st.sampled_from(["every_node", "every_node", "none", Interval(3)])
PATHS = 12
"""Paths of one run that are compared."""


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the graphs name."""
    return User.objects.create(username="ann")


def lived(
    made: tuple[list[Spec], list[str]],
    dice: int,
    ann: User,
    checkpoints: Any = "every_node",
) -> Run:
    """A run of a random graph with random decisions."""
    played = play(built(*made, dice), {}, decisions=decider(dice))
    assume(
        1 < sum(len(superstep.tasks) for superstep in played.supersteps) <= MOST_TASKS
    )
    graph = built(*made, dice)
    graph.checkpoints = checkpoints
    as_run(graph, decider(dice), ann)
    return Run.objects.latest("created_at")


@seed(SEED)
@drawn(SHARE)
@given(graphs(), st.integers(0, 2**32), POLICIES)
def test_blame_of_a_random_run_is_the_last_neighbouring_pair_that_differs(
    ann: User, made: tuple[list[Spec], list[str]], dice: int, checkpoints: Any
) -> None:
    run = lived(made, dice, ann, checkpoints)
    chance = random.Random(dice)
    states = naive_history.states_of(run)
    at = chance.randrange(len(states))
    row = naive_history.rows_of(run)[at]
    changed = naive_history.changed_at(states[: at + 1])
    for path in chance.sample(sorted(changed), min(PATHS, len(changed))):
        assert timeline.blame(row.id, path).checkpoint.seq == changed[path][-1], path
    changed = naive_history.changed_at(states)
    for path in chance.sample(sorted(changed), min(PATHS, len(changed))):
        assert [
            step.checkpoint.seq for step in timeline.history(run.id, path)
        ] == changed[path], path


@seed(SEED)
@drawn(SHARE)
@given(graphs(), st.integers(0, 2**32), POLICIES)
def test_the_diff_against_the_parent_applied_to_the_parent_state_gives_the_state_shown(
    ann: User, made: tuple[list[Spec], list[str]], dice: int, checkpoints: Any
) -> None:
    run = lived(made, dice, ann, checkpoints)
    for row in naive_history.rows_of(run):
        shown = timeline.state_at(row.id)
        before = (
            timeline.state_at(row.parent) if row.parent else {"input": shown["input"]}
        )
        assert canonical.encode(
            patched(before, timeline.changes(row))
        ) == canonical.encode(shown), row.seq


@seed(SEED)
@drawn(SHARE)
@given(graphs(), st.integers(0, 2**32), POLICIES)
def test_the_state_at_each_checkpoint_of_runs_that_were_forked_and_rewound_is_rebuilt_from_the_log(
    ann: User, made: tuple[list[Spec], list[str]], dice: int, checkpoints: Any
) -> None:
    run = lived(made, dice, ann, checkpoints)
    chance = random.Random(dice)
    touched = {run.id}
    for _ in range(2):
        row = chance.choice(naive_history.rows_of(run))
        fork = chance.random() < 0.5
        with suppress(CountersignError):
            touched.add(
                runs.advance(
                    (runs.fork(row.id) if fork else runs.rewind(run.id, row.id)).id
                ).id
            )
    for row in Checkpoint.objects.filter(kept=True, run__in=touched).order_by(
        "run", "seq"
    ):
        assert canonical.encode(document_by_log(row.id)) == canonical.encode(
            reader.document_at(row.id)
        ), row
    for run_id in touched:
        assert not [
            fault
            for fault in verify_run(run_id)
            if "checkpoint" in fault.table or "order" in fault.reason
            if "memory" not in fault.table
        ]


def patched(state: dict[str, Any], changes: Iterable[Change]) -> dict[str, Any]:
    """The state with each change made, path by path."""
    state = {name: copy.deepcopy(state.get(name, {})) for name in timeline.PARTITIONS}
    ordered = list(changes)
    removed = [change for change in ordered if change.kind == "removed"]
    for change in [
        *[change for change in ordered if change.kind != "removed"],
        *removed[::-1],
    ]:
        *inner, last = parsed_path(
            f"{change.partition}.{change.path}"
            if change.path[0] != "["
            else change.partition + change.path
        ).parts
        place: Any = state[change.partition]
        for part in inner:
            place = place[part]
        if change.kind == "removed":
            del place[last]
        elif change.kind == "added" and isinstance(place, list):
            place.append(change.after)
        else:
            place[last] = change.after
    return state
