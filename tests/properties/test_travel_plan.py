"""The plan never lies: random graph, random point, verb, patch and answers. What then
happens is what it listed.
"""

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import assume, event, given, note, seed
from hypothesis import strategies as st

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import ENDS, Status
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.graphs.call import CALL
from orchestrator.runs import Plan
from tests.crash import scenarios
from tests.crash.abort import Points
from tests.crash.scenarios import Scenario
from tests.engine.random_graphs import graphs, modelled
from tests.engine.reference import Model, Spec
from tests.properties.drawing import CALLED, MOST_TASKS, SEED, drawn, people, registered

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
MANY = int(os.environ.get("COUNTERSIGN_PLANS", "100"))
"""Examples of the first property; `make sweep` draws 2,000."""
SHARE = 1 if connection.vendor == "sqlite" else 3 if MANY > 100 else 10
MOST_ACTS = 60


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the random graphs name."""
    return User.objects.create(username="ann")


@seed(SEED)
@drawn(SHARE, many=MANY)
@given(graphs(), st.integers(0, 2**32))
def test_what_happens_is_what_the_plan_lists(
    tmp_path: Path,
    ann: User,
    quick: None,
    made: tuple[list[Spec], list[str]],
    dice: int,
) -> None:
    specs, starts = _without_deadlines(made)
    rounds, _, _ = modelled(Model(specs, starts, dice))
    assume(sum(len(tasks) for tasks, *_ in rounds) <= MOST_TASKS)
    registered(specs, starts, dice, single=True)
    origin = scenarios.live(
        Scenario("random", people(dice), input={}),
        by=ann,
        folder=tmp_path,
        trouble=Points(),
    )
    chance = Random(f"{dice}/travel")
    point = _point(origin, chance)
    how = chance.choice(["fork", "rewind"])
    patch = chance.choice([None, {"scratch": {"log": ["patched"]}}])
    plan = runs.plan(point.id, how, patch=patch)
    allowed = [node for node in plan.needs_yes if chance.random() < 0.5]
    plan = runs.plan(point.id, how, patch=patch, allow_effects=allowed)
    note(f"{how} from {point.seq}: {plan.to_text()}")
    event(
        f"{how}, {'patched' if patch else 'as it was'}, {'held' if plan.guarded else 'free'}"
    )
    answers = _answers(point, chance)
    before = {**CALLED[origin.id]}
    asked: dict[str, Any] = {
        "patch": patch,
        "answers": answers,
        "allow_effects": allowed,
        "by": ann,
    }
    run = (
        runs.fork(point.id, **asked)
        if how == "fork"
        else runs.rewind(origin.id, point.id, **asked)
    )
    _work_on(run, ann, dice)
    _as_listed(run, plan, before if how == "rewind" else {})
    assert verify_run(run.id) == verify_run(origin.id) == []


@seed(SEED)
@drawn(SHARE, many=MANY // 4)
@given(graphs(), st.integers(0, 2**32))
def test_a_replay_from_anywhere_comes_to_the_same_end_and_calls_nobody(
    tmp_path: Path,
    ann: User,
    quick: None,
    made: tuple[list[Spec], list[str]],
    dice: int,
) -> None:
    specs, starts = _without_deadlines(made)
    rounds, _, _ = modelled(Model(specs, starts, dice))
    assume(sum(len(tasks) for tasks, *_ in rounds) <= MOST_TASKS)
    registered(specs, starts, dice)
    origin = scenarios.live(
        Scenario("random", people(dice), input={}),
        by=ann,
        folder=tmp_path,
        trouble=Points(),
    )
    assume(origin.status in ENDS)
    point = _point(origin, Random(f"{dice}/replay"))
    run = runs.advance(runs.replay(point.id, by=ann).id)
    report = runs.replay_report(run.id)
    note(f"from {point.seq}: {report}")
    assert report["diverged"] == []
    assert run.status == origin.status
    assert (
        timeline.head_state(run.id)["scratch"]
        == timeline.head_state(origin.id)["scratch"]
    )
    assert CALLED[run.id] == {}
    assert verify_run(run.id) == []
    event(f"{run.status}, {len(report['reused'])} reused")


def _without_deadlines(
    made: tuple[list[Spec], list[str]],
) -> tuple[list[Spec], list[str]]:
    """The same graphs, whose people decide by themselves and let no deadline come."""
    specs, starts = made
    for spec in specs:
        spec.deadline = ""
    return specs, starts


def _point(run: Run, chance: Random) -> Checkpoint:
    """Any kept checkpoint; more often than others one at which people are asked."""
    points = list(Checkpoint.objects.filter(run=run, kept=True).order_by("seq"))
    asking = [point for point in points if timeline.held_at(point)]
    return chance.choice(asking if asking and chance.random() < 0.6 else points)


def _answers(point: Checkpoint, chance: Random) -> dict[str, Any] | None:
    """Return what one node proposed, or something else, for what waits at the point."""
    held = [row for row in timeline.held_at(point) if not _is_approved_call(point, row)]
    nodes = Counter(row.node for row in held)
    alone = [row for row in held if nodes[row.node] == 1]
    if not alone or chance.random() < 0.4:
        return None
    event("answered at once")
    row = chance.choice(alone)
    other = {"text": "another answer"} if row.channel == CALL else ["another answer"]
    return {row.node: {row.channel: chance.choice([read_value(row, "value"), other])}}


def _is_approved_call(point: Checkpoint, row: PendingWrite) -> bool:
    """Return whether it was approved before the point, and only its node had yet to
    run.
    """
    waiting = timeline.snapshot_of(point)["frontier"]["waiting"]
    tasks = waiting.get(f"{row.node}:{row.visit}", [])
    approved = [index for index, task in enumerate(tasks) if task["status"] == "call"]
    return row.channel == CALL and row.index in approved


def _work_on(run: Run, by: User, dice: int) -> None:
    """Work on a run until it ends, or waits for a yes that nobody gives."""
    decide = people(dice)
    for _ in range(MOST_ACTS):
        run = runs.advance(run.id)
        if (
            run.status != Status.PAUSED
            or not ApprovalRequest.objects.filter(run=run, status="open").exists()
        ):
            return
        patches = ApprovalRequest.objects.filter(run=run, status="open", node="$patch")
        if patches.exists():
            _approve(run, by)
        else:
            decide(run, by)
    raise AssertionError(f"the run does not end: {run.status} at {run.at_node}")


def _approve(run: Run, by: User) -> None:
    rows = pending_writes.newest(
        PendingWrite.objects.filter(run=run, line=run.line, node="$patch")
    )
    reviews.sign(
        run.id,
        [
            {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
            for row in rows
        ],
        by=by,
    )


def _as_listed(run: Run, plan: Plan, before: dict[tuple[str, str], int]) -> None:
    run.refresh_from_db()
    rows = Checkpoint.objects.filter(
        run=run, line=run.line, source__in=["superstep", "failure"]
    )
    ran = {entry["node"] for row in rows for entry in row.nodes}
    reused = {task.node for task in plan.reused}
    named = {task.node for task in (*plan.runs, *plan.may_run)}
    assert ran <= named | reused, (
        f"{ran - named - reused} ran, and the plan does not name it"
    )
    if run.status in ENDS or run.status == Status.PAUSED:
        assert {task.node for task in plan.runs} <= ran, "the plan says that it runs"
    called = {task.partition(":")[0] for task, key in {*CALLED[run.id]} - {*before}}
    assert called <= named
    assert not called & {*plan.needs_yes}, "nobody said yes to it"
    event(f"{run.status}{' before an effect' if run.status == Status.PAUSED else ''}")
