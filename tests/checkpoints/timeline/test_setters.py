"""Who stands behind a value: who signed, who edited, who said that an effect had
happened.
"""

from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.alignment import Reason
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Graph, Merge, registry
from tests.support import claims, forks
from tests.support.cast import People
from tests.support.long_runs import head_of

pytestmark = pytest.mark.django_db(transaction=True)


def signed(run: Run, by: Any, verdict: str, **options: Any) -> None:
    [request] = ApprovalRequest.objects.filter(run=run, status="open")
    rows = request.run.pending_writes.filter(revision=1).order_by("position")
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        for row in rows
    ]
    items[0] |= {"verdict": verdict, **options}
    reviews.sign(run.id, items, by=by)


@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_what_was_signed_is_blamed_on_the_settlement_with_node_and_signer(
    people: People, verdict: str
) -> None:
    with claims.registered(claims.graph_of()):
        run = claims.paused("CLM-1", people.starter)
        edit = (
            {"value": {"amount": "9.00", "account": "DE89"}}
            if verdict == "edit"
            else {}
        )
        signed(run, people.reviewer, verdict, **edit)
        run = runs.advance(run.id)
        blamed = timeline.blame(head_of(run).id, "payout.amount")
    assert blamed.checkpoint.source == "settlement"
    assert blamed.node == "propose"
    assert blamed.person == people.reviewer.username


def test_several_signers_are_all_named_and_a_rejected_write_is_nobodys(
    people: People,
) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-1", people.starter)
        signed(run, people.reviewer, "reject", reason="no")
        second = User.objects.create(username="second")
        second.groups.add(*people.reviewer.groups.all())
        [request] = ApprovalRequest.objects.filter(run=run, status="open")
        signed(run, second, "approve")
        run = runs.advance(run.id)
        blamed = timeline.blame(head_of(run).id, "count")
        assert blamed.person == ", ".join(sorted([people.reviewer.username, "second"]))
        assert timeline.blame(head_of(run).id, "payout").checkpoint.seq == 0


def test_a_patch_that_people_had_to_sign_names_who_patched_and_who_signed_it(
    people: People,
) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        fork = runs.advance(
            forks.forked(
                origin, 1, {"scratch": {"letter": "Dear Rita"}}, by=people.starter
            ).id
        )
        assert timeline.blame(head_of(fork).id, "letter").checkpoint.seq == 0, (
            "it is held, so nothing set it yet"
        )
        signed(fork, people.reviewer, "approve")
        fork = runs.advance(fork.id)
        blamed = timeline.blame(timeline.list_checkpoints(fork.id)[-2].id, "letter")
        assert blamed.checkpoint.source == "settlement"
        assert blamed.node == "$patch"
        assert blamed.person == f"{people.starter.username}, {people.reviewer.username}"
        [difference] = [
            difference
            for difference in timeline.align(origin.id, fork.id).differences
            if difference.path == "letter"
        ]
        assert difference.reason == Reason("patch", (), "b")


class State(BaseModel):
    notes: Annotated[list[str], Append] = []
    paid: str = ""
    other: str = ""


class Nothing(BaseModel):
    pass


def parallel(*, unknown: bool = False) -> Graph:
    """`pay` acts outside beside `ask`, also outside, and `note`, which is pure."""
    graph = Graph("setters", input=Nothing, state=State)

    @graph.node(effect="external")
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        if unknown:
            raise ConnectionError("no answer")
        return {"paid": "yes", "notes": ["paid"]}

    @graph.node(effect="external", idempotent=True)
    def ask(state: State, ctx: Any) -> dict[str, Any]:
        return {"other": "asked"}

    @graph.node()
    def note(state: State, ctx: Any) -> dict[str, Any]:
        return {"notes": ["noted"]}

    for name in ("pay", "ask", "note"):
        graph.edge(START, name)
        graph.edge(name, END)
    registry.replace(graph)
    return graph


def test_parallel_nodes_whose_results_did_not_write_to_a_path_are_left_out() -> None:
    graph = parallel()
    at = head_of(runs.advance(runs.start(graph.name, {}).id)).id
    assert timeline.blame(at, "notes").node == "pay, note"
    assert timeline.blame(at, "other").node == "ask, note", (
        "nobody knows what a pure node wrote"
    )


def test_an_output_that_a_person_gave_names_that_person(people: People) -> None:
    graph = parallel(unknown=True)
    run = runs.advance(runs.start(graph.name, {}).id)
    assert run.status == "unknown"
    runs.settle(
        run.id,
        "pay:1:0",
        happened=True,
        output={"paid": "late"},
        by=people.starter,
        reason="the bank says so",
    )
    blamed = timeline.blame(head_of(runs.advance(run.id)).id, "paid")
    assert blamed.node == "pay, note"
    assert blamed.person == people.starter.username


class Boxes(BaseModel):
    box: Annotated[dict[str, int], Merge] = {}
    plain: str = ""
    padding: str = ""


def boxing(policy: str, *, padded: bool = True) -> Graph:
    """first (sets box.x) -> second (external, sets box.y) and beside (external, sets
    nothing) -> third (sets box.z). Of a state that is `padded` each change is kept;
    else the whole state is smaller.
    """
    state = type(
        "PaddedBoxes",
        (Boxes,),
        {"padding": "x" * 5000, "__annotations__": {"padding": str}},
    )
    graph = Graph(
        "boxing", input=Nothing, state=state if padded else Boxes, checkpoints=policy
    )
    graph.node("first")(lambda state, ctx: {"box": {"x": 1}, "plain": "first"})
    graph.node("second", effect="external", idempotent=True)(
        lambda state, ctx: {"box": {"y": 1}}
    )
    graph.node("beside", effect="external", idempotent=True)(lambda state, ctx: {})
    graph.node("third")(lambda state, ctx: {"box": {"z": 1}})
    graph.edge(START, "first")
    for name in ("second", "beside"):
        graph.edge("first", name)
        graph.edge(name, "third")
    graph.edge("third", END)
    registry.replace(graph)
    return graph


@pytest.mark.parametrize("policy", ["every_node", "none"])
@pytest.mark.parametrize(
    ("path", "node"),
    [("box.x", "first"), ("box.y", "second"), ("box.z", "third"), ("plain", "first")],
)
def test_under_a_policy_that_replaces_rows_the_node_is_blamed_that_set_the_path(
    policy: str, path: str, node: str
) -> None:
    run = runs.advance(runs.start(boxing(policy).name, {}).id)
    assert timeline.blame(head_of(run).id, path).node == node


def test_where_only_the_whole_state_was_kept_all_are_blamed_that_may_have_set_the_path() -> (
    None
):
    run = runs.advance(runs.start(boxing("none", padded=False).name, {}).id)
    assert timeline.blame(head_of(run).id, "box.x").node == "first, second, third"
    assert timeline.blame(head_of(run).id, "plain").node == "first, third"


def test_in_a_replay_those_are_blamed_who_signed_in_its_origin(people: People) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        signed(origin, people.reviewer, "approve")
        origin = runs.advance(origin.id)
        initial = timeline.list_checkpoints(origin.id)[-1]
        replay = runs.advance(runs.replay(initial.id).id)
        for run in (origin, replay):
            blamed = timeline.blame(head_of(run).id, "payout.amount")
            assert blamed.node == "propose", run.key
            assert blamed.person == people.reviewer.username, run.key
        seen = Run.objects.exclude(id=origin.id)
        assert (
            timeline.blame(head_of(replay).id, "payout.amount", among=seen).person == ""
        )


def test_a_patch_that_waited_at_the_point_of_a_fork_names_who_made_it(
    people: People,
) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        first = runs.advance(
            forks.forked(
                origin, 1, {"scratch": {"letter": "Dear Rita"}}, by=people.starter
            ).id
        )
        second = runs.advance(forks.forked(first, 0, by=people.steward).id)
        signed(second, people.reviewer, "approve")
        second = runs.advance(second.id)
        blamed = timeline.blame(timeline.list_checkpoints(second.id)[-2].id, "letter")
        assert blamed.person == f"{people.starter.username}, {people.reviewer.username}"


def test_in_a_replay_of_a_patch_that_was_signed_who_patched_and_who_signed_it_are_named(
    people: People,
) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        fork = runs.advance(
            forks.forked(
                origin, 1, {"scratch": {"letter": "Dear Rita"}}, by=people.starter
            ).id
        )
        signed(fork, people.reviewer, "approve")
        fork = runs.advance(fork.id)
        replay = runs.advance(runs.replay(f"{fork.key}:initial", by=people.steward).id)
        for run in (fork, replay):
            settled = run.checkpoints.filter(source="settlement").earliest("seq")
            blamed = timeline.blame(settled.id, "letter")
            assert blamed.node == "$patch", run.key
            assert (
                blamed.person
                == f"{people.starter.username}, {people.reviewer.username}"
            ), run.key
        assert (
            timeline.blame(
                settled.id, "letter", among=Run.objects.filter(id=replay.id)
            ).person
            == ""
        )


def test_who_edited_a_patch_that_people_had_to_sign_stands_in_for_who_signed_it(
    people: People,
) -> None:
    with claims.registered(claims.graph_of()):
        origin = claims.paused("CLM-1", people.starter)
        fork = runs.advance(
            forks.forked(
                origin, 1, {"scratch": {"letter": "Dear Rita"}}, by=people.starter
            ).id
        )
        signed(fork, people.reviewer, "edit", value="Dear Ravi")
        fork = runs.advance(fork.id)
        [change] = [
            step
            for step in timeline.history(fork.id, "letter")
            if step.node == "$patch"
        ]
        assert change.after == "Dear Ravi"
        assert change.person == f"{people.starter.username}, {people.reviewer.username}"
