"""A settled gate is never left behind, at whatever moment it was settled."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from orchestrator.execution import commit, loop
from tests.crash.abort import watching
from tests.support import cast, run_actions
from tests.support.run_actions import sign, start
from tests.support.small_graphs import graph, held, slice_of, started
from tests.support.statements import Breaks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def test_a_gate_settled_between_the_last_look_of_a_worker_and_its_rest_is_applied(
    tmp_path: Path, rita: User
) -> None:
    run = start("gated", tmp_path)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    laid_out = loop._open_session(held(run))
    assert laid_out is not None
    assert not laid_out.has_settled_gate()
    sign(run, rita, ["approve"] * 4)
    commit.commit_rest(laid_out)
    run.refresh_from_db()
    assert run.status != Status.PAUSED, (
        "a paused run has no settled gate that is not applied"
    )
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_gate_settled_while_a_superstep_was_in_hand_is_applied_behind_it(
    rita: User,
) -> None:
    made = graph("beside")
    gate = Gate(reviewers=["group:claims"])
    made.node("write", approve="writes", gate=gate)(
        lambda state, ctx: {"letter": "Dear"}
    )
    made.node("look")(lambda state, ctx: None)
    made.node("pay", effect="external")(lambda state, ctx: {"notes": ["paid"]})
    for source, target in (
        (START, "write"),
        (START, "look"),
        ("look", "pay"),
        ("pay", END),
        ("write", END),
    ):
        made.edge(source, target)
    run = started(made)
    slice_of(run, draining=iter([False, True]).__next__)
    with watching(Breaks('INSERT INTO "checkpoints_checkpoint"', after=False)):
        slice_of(run)
    assert TaskResult.objects.get(run=run.id).outcome == "done"
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["letter"] == "Dear"
    assert run_actions.state(run)["notes"] == ["paid"]
    assert verify_run(run.id) == []
