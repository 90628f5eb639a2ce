"""A settled gate is never left behind, at whatever moment it was settled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, RequestReviewer, RequestViewer
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from orchestrator.execution import commit, loop
from tests.crash.abort import watching
from tests.support import cast, run_actions
from tests.support.forging import remove
from tests.support.memory_graphs import memory, remember
from tests.support.run_actions import pending, sign, sources, start
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
    flow = graph("beside")
    gate = Gate(reviewers=["group:claims"])
    flow.node("write", approve="writes", gate=gate)(
        lambda state, ctx: {"letter": "Dear"}
    )
    flow.node("look")(lambda state, ctx: None)
    flow.node("pay", effect="external")(lambda state, ctx: {"notes": ["paid"]})
    for source, target in (
        (START, "write"),
        (START, "look"),
        ("look", "pay"),
        ("pay", END),
        ("write", END),
    ):
        flow.edge(source, target)
    run = started(flow)
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


LAST = 8
"""The number of supersteps of the branch beside the gate."""


def _long_branch(name: str, *, moves_at: int = 0) -> Graph:
    """A gate beside a branch of many supersteps, the one numbered `moves_at` of which
    rewrites what the gate's write is bound to.
    """
    flow = graph(name)
    gate = Gate(reviewers=["group:claims"])
    flow.node("write", approve="writes", gate=gate)(
        lambda state, ctx: {"letter": "Dear"}
    )

    @flow.node()
    def tick(state: Any, ctx: Any) -> dict[str, Any]:
        total = state.total + 1
        if total == moves_at:
            return {"total": total, "letter": "rewritten"}
        return {"total": total}

    flow.edge(START, "write")
    flow.edge("write", END)
    flow.edge(START, "tick")
    flow.branch("tick", lambda state: state.total < LAST, {True: "tick", False: END})
    return flow


def _slice_with(run: Run, acts: dict[int, Callable[[], object]]) -> Run:
    """One slice of the run. Behind the superstep of each of these numbers something is
    done, as if by another process.
    """
    looks = 0

    def act() -> bool:
        nonlocal looks
        # The first look is before the first superstep.
        acts.get(looks, bool)()
        looks += 1
        return False

    return slice_of(run, draining=act)


def test_a_signature_between_two_supersteps_is_applied_by_the_same_slice(
    rita: User,
) -> None:
    run = started(_long_branch("signed-between"))
    run = _slice_with(run, {4: lambda: sign(run, rita, ["approve"])})
    assert run.status == Status.COMPLETED
    # The superstep in hand when the log has moved ends first. A commit on its way that is
    # made again, beside a heartbeat for instance, finds the signature one step earlier.
    run_sources = sources(run)
    assert run_sources.index("settlement") in (5, 6)
    run_sources.remove("settlement")
    assert run_sources == ["input"] + ["superstep"] * LAST
    assert run_actions.state(run)["letter"] == "Dear"
    assert verify_run(run.id) == []


def test_an_edit_between_two_supersteps_is_what_is_applied(rita: User) -> None:
    run = started(_long_branch("edited-between"))
    run = _slice_with(run, {4: lambda: sign(run, rita, [("edit", "Madam")])})
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["letter"] == "Madam"
    assert verify_run(run.id) == []


def test_a_write_comes_back_when_its_base_moves_after_steps_that_left_it(
    rita: User,
) -> None:
    run = started(_long_branch("moved-late", moves_at=6))
    run = _slice_with(run, {})
    assert run.status == Status.PAUSED
    assert [row.revision for row in pending(run)] == [2]
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert run_actions.state(run)["letter"] == "Dear"
    assert verify_run(run.id) == []


def test_a_write_that_came_back_is_signed_in_its_new_revision_by_the_same_slice(
    rita: User,
) -> None:
    run = started(_long_branch("moved-then-signed", moves_at=4))
    run = _slice_with(run, {6: lambda: sign(run, rita, ["approve"])})
    assert run.status == Status.COMPLETED
    assert [row.revision for row in pending(run)] == [2]
    assert run_actions.state(run)["letter"] == "Dear"
    assert verify_run(run.id) == []


def test_a_signature_in_the_superstep_that_moves_its_base_does_not_count(
    rita: User,
) -> None:
    run = started(_long_branch("signed-while-moved", moves_at=5))
    run = _slice_with(run, {4: lambda: sign(run, rita, ["approve"])})
    assert run.status == Status.PAUSED
    assert [row.revision for row in pending(run)] == [2]
    assert run_actions.state(run)["letter"] == "rewritten"
    assert verify_run(run.id) == []


def test_a_base_that_moves_twice_is_compared_with_the_newest_revision(
    rita: User,
) -> None:
    flow = _long_branch("moved-twice")

    @flow.node()
    def rewrite(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": f"{state.letter}."}

    flow.edge(START, "rewrite")
    flow.branch(
        "rewrite", lambda state: len(state.letter) < 3, {True: "rewrite", False: END}
    )
    run = _slice_with(started(flow), {})
    # The write is staged behind the first rewriting.
    assert [row.revision for row in pending(run)] == [3]
    sign(run, rita, ["approve"])
    run = runs.advance(run.id)
    assert run_actions.state(run)["letter"] == "Dear"
    assert verify_run(run.id) == []


def test_a_cancel_between_two_supersteps_withdraws_the_request(
    rita: User,
) -> None:
    run = started(_long_branch("cancelled-between"))
    run = _slice_with(run, {4: lambda: runs.cancel(run.id, by=rita, reason="over")})
    assert run.status == Status.CANCELLED
    assert run_actions.request(run).status == "withdrawn"
    assert verify_run(run.id) == []


def test_a_request_that_is_deleted_between_two_supersteps_is_missed_before_the_run_pauses(
    rita: User,
) -> None:
    def delete() -> None:
        for model in (RequestReviewer, RequestViewer, ApprovalRequest):
            for row in model.objects.all():
                remove(row)

    run = _slice_with(started(_long_branch("deleted-between")), {4: delete})
    assert run.status == Status.TAMPERED


def test_a_held_memory_comes_back_when_another_run_changes_it_between_two_supersteps(
    rita: User,
) -> None:
    flow = _long_branch("memory-beside")
    gate = Gate(reviewers=["group:claims"])

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> None:
        ctx.memory.put("limit", 100, "rules")

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = started(flow)
    run = _slice_with(run, {5: lambda: remember("limit", 50, "rules")})
    assert {row.node: row.revision for row in pending(run)} == {
        "propose": 2,
        "write": 1,
    }
    sign(run, rita, ["approve", "approve"])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {"rules/limit": 100}
    assert verify_run(run.id) == []
