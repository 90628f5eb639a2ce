"""Gates: who must be asked, whose signature counts for what, and what wakes a run."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from orchestrator.engine.errors import NotAReviewer
from tests.support import cast, run_actions
from tests.support.run_actions import pending, sign, state
from tests.support.small_graphs import (
    advanced,
    graph,
    registered,
    slice_of,
    started,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("answer", [0, "", None, [], "amount is high", True])
def test_a_gate_is_passed_without_people_for_the_literal_false_alone(
    answer: Any,
) -> None:
    flow = graph("asked-or-not")

    @flow.node(
        effect="human",
        gate=Gate(
            reviewers=["group:claims"], needs_approval=lambda state, proposal: answer
        ),
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    assert run.status == Status.PAUSED
    assert state(run)["letter"] == ""


def test_a_gate_whose_check_says_false_holds_nothing() -> None:
    flow = graph("not-asked")

    @flow.node(
        effect="human",
        gate=Gate(
            reviewers=["group:claims"], needs_approval=lambda state, proposal: False
        ),
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "proposed"
    assert not ApprovalRequest.objects.exists()


def _two_gates() -> Graph:
    """Two gates beside each other that ask different groups."""
    flow = graph("two-groups")

    def proposing(name: str) -> None:
        @flow.node(name, effect="human", gate=Gate(reviewers=[f"group:{name}"]))
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name]}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("claims")
    proposing("finance")
    return flow


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def test_one_act_over_two_requests_counts_nothing_where_its_person_reviews_only_one(
    rita: User,
) -> None:
    run = advanced(_two_gates())
    with pytest.raises(NotAReviewer):
        sign(run, rita, ["approve", "approve"])
    assert not Decision.objects.exists()
    sign(run, rita, ["approve", None])
    assert Decision.objects.get().by == rita


def test_an_act_that_settles_nothing_does_not_wake_the_run(rita: User) -> None:
    flow = graph("for-two")

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"], quorum=2))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    before = run.wakes
    sign(run, rita, ["approve"])
    run.refresh_from_db()
    assert run.status == Status.PAUSED
    assert run.wakes == before


def test_an_idempotency_key_belongs_to_one_person(
    rita: User, people: cast.People
) -> None:
    run = advanced(_two_gates())
    ravi = people.second_reviewer
    ravi.groups.create(name="finance")
    receipts = []
    for by, row in zip((rita, ravi), pending(run), strict=True):
        item = {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        receipts.append(reviews.sign(run.id, [item], by=by, idempotency_key="click"))
    assert receipts[0].id != receipts[1].id
    assert Decision.objects.count() == 2


def test_a_gate_that_is_settled_during_the_last_superstep_of_a_branch_is_applied_by_the_same_worker(
    rita: User,
) -> None:
    flow = graph("settled-meanwhile")

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    @flow.node()
    def first(state: Any, ctx: Any) -> None:
        pass

    @flow.node()
    def last(state: Any, ctx: Any) -> None:
        sign(Run.objects.get(id=ctx.run_id), rita, ["approve"])

    flow.edge(START, "propose")
    flow.edge("propose", END)
    flow.edge(START, "first")
    flow.edge("first", "last")
    flow.edge("last", END)
    run = slice_of(started(flow))
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "proposed"


def test_what_terms_ask_for_is_what_the_request_carries() -> None:
    flow = graph("on-terms")

    def terms(asked: Any) -> dict[str, Any]:
        return {"reviewers": [f"user:{asked.folder}"], "quorum": 2}

    flow.node("propose", effect="human", gate=Gate(terms=terms))(
        lambda state, ctx: {"letter": "Dear"}
    )
    flow.edge(START, "propose")
    flow.edge("propose", END)
    registered(flow)
    User.objects.create_user("ann")
    run = runs.advance(runs.start("on-terms", {"folder": "ann"}).id)
    request = run.requests.get()
    assert request.policy["quorum"] == request.quorum == 2
    assert request.policy["reviewers"] == ["user:ann"]
    sign(run, User.objects.get(username="ann"), ["approve"])
    assert runs.advance(run.id).status == Status.PAUSED
    assert verify_run(run.id) == []
