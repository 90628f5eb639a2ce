"""What a settlement applies, when, and in which order."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from orchestrator.engine.errors import NotAReviewer
from orchestrator.execution import loop
from tests.support import cast, run_actions
from tests.support.run_actions import pending, sign, sources, state
from tests.support.small_graphs import advanced, graph, started

pytestmark = pytest.mark.django_db(transaction=True)
GATE = Gate(reviewers=["group:claims"])


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def _two(channel: str) -> Graph:
    """Two gates beside each other that write the same channel."""
    flow = graph(f"two-gates-{channel}")

    def proposing(name: str) -> None:
        @flow.node(name, effect="human", gate=GATE)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {channel: [name] if channel == "notes" else name}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("first")
    proposing("second")
    return flow


@pytest.mark.parametrize("order", [["first", "second"], ["second", "first"]])
def test_gates_are_applied_in_the_order_in_which_they_were_settled(
    order: list[str], rita: User
) -> None:
    run = advanced(_two("notes"))
    for name in order:
        sign(
            run, rita, ["approve" if row.node == name else None for row in pending(run)]
        )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == order
    assert sources(run) == ["input", "superstep", "settlement"], (
        "both in one settlement"
    )


def test_a_gate_whose_base_an_earlier_one_of_the_same_settlement_moves_comes_back(
    rita: User,
) -> None:
    run = advanced(_two("letter"))
    for name in ("second", "first"):
        sign(
            run, rita, ["approve" if row.node == name else None for row in pending(run)]
        )
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert state(run)["letter"] == "second"
    assert {row.node: row.revision for row in pending(run)} == {"first": 2, "second": 1}
    assert ApprovalRequest.objects.get(run=run, node="first").status == "open"
    sign(run, rita, ["approve", None])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "first"


def _beside(*, broken: list[str], rewrites: bool) -> Graph:
    """A gate beside a branch of two supersteps; the second looks at the letter, and
    fails while `broken` says so.
    """
    flow = graph("beside-a-gate")

    @flow.node(effect="human", gate=GATE)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "signed"}

    @flow.node()
    def first(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def second(state: Any, ctx: Any) -> dict[str, Any]:
        if broken:
            raise RuntimeError(broken[0])
        return (
            {"letter": "rewritten"}
            if rewrites
            else {"notes": [f"saw {state.letter!r}"]}
        )

    flow.edge(START, "propose")
    flow.edge("propose", END)
    flow.edge(START, "first")
    flow.edge("first", "second")
    flow.edge("second", END)
    return flow


def test_a_failed_superstep_ends_on_its_own_snapshot_before_later_signatures_apply(
    rita: User,
) -> None:
    broken = ["the line broke"]
    run = advanced(_beside(broken=broken, rewrites=False))
    assert run.status == Status.FAILED
    sign(run, rita, ["approve"])
    run.refresh_from_db()
    assert run.status == Status.FAILED, "a signature is kept, and moves no failed run"
    broken.clear()
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert sources(run) == ["input", "superstep", "failure", "superstep", "settlement"]
    assert state(run)["notes"] == ["saw ''"]
    assert state(run)["letter"] == "signed"


def _one_superstep(run: Run) -> None:
    claim = leases.claim_one(run.id)
    assert claim is not None
    looks = iter([False])
    loop.run_slice(claim.id, claim.epoch, draining=lambda: next(looks, True))


@pytest.mark.parametrize(("verdict", "revision"), [("approve", 2), ("reject", 1)])
def test_a_moved_base_opens_an_approved_write_again_and_leaves_a_rejected_one_rejected(
    verdict: str, revision: int, rita: User
) -> None:
    flow = graph("half-settled")

    @flow.node(effect="human", gate=GATE)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "signed", "notes": ["a note"]}

    @flow.node()
    def move(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": 1}

    @flow.node()
    def rewrite(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "rewritten"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    flow.edge(START, "move")
    flow.edge("move", "rewrite")
    flow.edge("rewrite", END)
    run = started(flow)
    _one_superstep(run)
    letter = next(row for row in pending(run) if row.channel == "letter")
    sign(
        run,
        rita,
        [verdict if row.write == letter.write else None for row in pending(run)],
    )
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert PendingWrite.objects.filter(write=letter.write).count() == revision
    wanted = [
        None if row.channel == "letter" and verdict == "reject" else "approve"
        for row in pending(run)
    ]
    sign(run, rita, wanted)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == ("signed" if verdict == "approve" else "rewritten")
    assert state(run)["notes"] == ["a note"]


def _moving(gate: Gate, proposal: dict[str, Any], moved: dict[str, Any]) -> Run:
    """A run with a signed or edited proposal in hand, beside a branch that moves
    something in its second superstep.
    """
    flow = graph("moving")

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return proposal

    @flow.node()
    def wait(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def move(state: Any, ctx: Any) -> dict[str, Any]:
        return moved

    flow.edge(START, "propose")
    flow.edge("propose", END)
    flow.edge(START, "wait")
    flow.edge("wait", "move")
    flow.edge("move", END)
    run = started(flow)
    _one_superstep(run)
    return run


@pytest.mark.parametrize(
    ("shows", "moved", "revision"),
    [
        ([], {"total": 7}, 1),
        (["total"], {"total": 7}, 2),
        (["total"], {"letter": "other"}, 1),
    ],
)
def test_a_channel_that_belongs_to_the_decision_binds_it_like_a_base(
    shows: list[str], moved: dict[str, Any], revision: int, rita: User
) -> None:
    gate = Gate(reviewers=["group:claims"], shows=shows)
    run = runs.advance(_moving(gate, {"notes": ["a note"]}, moved).id)
    assert [row.revision for row in pending(run)] == [revision]
    sign(run, rita, ["approve"])
    assert runs.advance(run.id).status == Status.COMPLETED


def test_under_four_eyes_the_author_of_an_edit_stays_its_author_on_a_new_base(
    rita: User, people: cast.People
) -> None:
    gate = Gate(reviewers=["group:claims"], four_eyes=True)
    run = _moving(gate, {"letter": "proposed"}, {"letter": "rewritten"})
    sign(run, rita, [("edit", "mine")])
    run = runs.advance(run.id)
    assert [(row.revision, row.reason) for row in pending(run)] == [(3, "rebase")]
    with pytest.raises(NotAReviewer):
        sign(run, rita, ["approve"])
    sign(run, run_actions.reviewer(people.second_reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "mine"
