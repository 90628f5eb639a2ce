"""Going on under another version of the graph: what its types make of a signed value
must be signed as well.
"""

from decimal import Decimal
from typing import Annotated, Any

import pytest
from django.test import Client
from pydantic import BaseModel

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph, Write
from orchestrator.engine.errors import IncompatibleGraph, InvalidValue
from tests.support import cast, run_actions
from tests.support.small_graphs import Notes, Order, advanced, registered
from tests.support.versioned_graphs import (
    Texts,
    deployed,
    in_euros,
    paying,
    signed_letter,
)

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "retyped"
PAID: list[Any] = []


class InText(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: str = "0"
    free: str = "0"


class Lettered(Notes):
    letter: int = 0  # type: ignore[assignment]


class InMoney(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Decimal = Decimal(0)
    free: Decimal = Decimal(0)


def graph_with(state: type[BaseModel], proposed: str = "010.00") -> Graph:
    """ask (human, proposes that total) -> pay (external)"""
    flow = Graph(NAME, input=Order, state=state)
    gate = Gate(reviewers=["group:claims"])
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("total", proposed), Write("free", "1")]
    )

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        PAID.append(state.total)
        return {"notes": [f"paid {state.total}"]}

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.edge(START, "ask")
    flow.edge("ask", "pay", when=("approved", "partial"))
    flow.edge("pay", END)
    return registered(flow)


@pytest.fixture
def signed(people: cast.People) -> Run:
    """A run of the version in text, whose total was signed and paid; only the version
    in money is registered now.
    """
    PAID.clear()
    graph_with(InText)
    run = runs.advance(runs.start(NAME, {}, key="signed").id)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert PAID == ["010.00"]
    graph_with(InMoney)
    PAID.clear()
    return run


def behind_the_gate(run: Run) -> str:
    return f"{run.key}:at-2"


def test_a_signed_value_that_another_version_reads_otherwise_waits_for_the_same_signatures(
    signed: Run, people: cast.People
) -> None:
    plan = runs.plan(behind_the_gate(signed))
    assert plan.guarded == {"total": "ask"}
    fork = runs.advance(
        runs.fork(behind_the_gate(signed), allow_effects=["pay"], by=people.starter).id
    )
    assert fork.status == Status.PAUSED
    assert PAID == []
    request = ApprovalRequest.objects.get(run=fork.id)
    assert request.node == "$patch"
    assert request.writes == 1
    assert str(read_value(request, "why")).startswith(
        "Version 1 of retyped reads this value otherwise"
    )
    assert timeline.head_state(fork.id)["scratch"]["total"] == "010.00", (
        "as it was signed, until it is signed anew"
    )
    run_actions.sign(fork, people.reviewer, ["approve"])
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.COMPLETED
    assert [Decimal("10.00")] == PAID
    assert not list(verify_run(new_run.id))


def test_a_value_of_another_version_that_is_rejected_is_not_taken(
    signed: Run, people: cast.People
) -> None:
    fork = runs.advance(
        runs.fork(behind_the_gate(signed), allow_effects=["pay"], by=people.starter).id
    )
    run_actions.sign(fork, people.reviewer, ["reject"])
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.REJECTED
    assert PAID == []
    assert timeline.head_state(new_run.id)["scratch"]["total"] == "010.00"
    # To go back behind that asks anew, and takes nothing either.
    again = runs.advance(
        runs.fork(f"{new_run.key}:initial", allow_effects=["pay"], by=people.starter).id
    )
    assert again.status == Status.PAUSED
    assert PAID == []


def test_a_patch_of_another_channel_of_the_gate_does_not_hide_what_the_version_changed(
    signed: Run, people: cast.People
) -> None:
    patch = {"scratch": {"free": "2.5"}}
    assert runs.plan(behind_the_gate(signed), patch=patch).guarded == {
        "total": "ask",
        "free": "ask",
    }
    fork = runs.advance(
        runs.fork(behind_the_gate(signed), patch=patch, allow_effects=["pay"]).id
    )
    assert fork.status == Status.PAUSED
    assert ApprovalRequest.objects.get(run=fork.id).writes == 2
    assert PAID == []


def test_a_replay_under_another_version_asks_nobody(
    signed: Run, people: cast.People
) -> None:
    assert not runs.plan(behind_the_gate(signed), "replay").guarded
    replay = runs.advance(runs.replay(behind_the_gate(signed), by=people.starter).id)
    assert replay.status == Status.COMPLETED
    assert PAID == []
    assert ApprovalRequest.objects.filter(run=replay.id).count() == 0
    assert [task["task"] for task in runs.replay_report(replay.id)["diverged"]] == [
        "pay:1:0"
    ]


def waiting_at_the_gate(people: cast.People, proposed: str) -> Run:
    """A run of the version in text that waits for its people; only the version in money
    is registered now.
    """
    PAID.clear()
    graph_with(InText, proposed)
    run = runs.advance(runs.start(NAME, {}, key="waits").id)
    assert run.status == Status.PAUSED
    graph_with(InMoney)
    return run


def test_what_waits_at_the_point_is_signed_as_the_version_that_goes_on_reads_it(
    people: cast.People,
) -> None:
    run = waiting_at_the_gate(people, "010.00")
    fork = runs.fork(run.head or "", by=people.starter)
    asked = {row.channel: read_value(row, "value") for row in run_actions.pending(fork)}
    assert asked == {"total": "10.00", "free": "1"}
    run_actions.sign(
        fork, run_actions.reviewer(people.reviewer), ["approve", "approve"]
    )
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.COMPLETED
    assert [Decimal("10.00")] == PAID
    assert run_actions.state(new_run)["total"] == asked["total"], (
        "what was set is what was signed"
    )
    assert not list(verify_run(new_run.id))


def test_a_waiting_value_that_the_new_version_does_not_accept_is_refused_with_its_place(
    people: cast.People,
) -> None:
    run = waiting_at_the_gate(people, "ten")
    before = Run.objects.count()
    for verb in (runs.plan, runs.fork):
        with pytest.raises(InvalidValue, match="ask:1:0 wrote to total") as refused:
            verb(run.head or "")
        assert refused.value.facts["path"] == "ask.total"
    assert Run.objects.count() == before
    browser = Client()
    browser.force_login(people.starter)
    page = browser.get(f"/checkpoints/{run.head}/go-on/", follow=True)
    assert page.status_code == 409
    assert "ask:1:0 wrote to total" in page.content.decode()


@pytest.mark.parametrize("proposed", ["010.00", "ten"])
def test_what_an_open_superstep_keeps_is_taken_as_the_version_that_goes_on_reads_it(
    people: cast.People, proposed: str
) -> None:
    def made_with(state: type[BaseModel], *, fails: bool) -> None:
        flow = Graph("half_done", input=Order, state=state)
        flow.node("good")(lambda state, ctx: [Write("free", proposed)])

        def bad(state: Any, ctx: Any) -> None:
            if fails:
                raise RuntimeError("not yet")

        flow.node("bad")(bad)
        for name in ("good", "bad"):
            flow.edge(START, name)
            flow.edge(name, END)
        registered(flow)

    made_with(InText, fails=True)
    run = runs.advance(runs.start("half_done", {}).id)
    assert run.status == Status.FAILED
    made_with(InMoney, fails=False)
    if proposed == "ten":
        with pytest.raises(InvalidValue) as refused:
            runs.fork(run.head or "")
        assert refused.value.facts["path"] == "good.free"
        return
    fork = runs.advance(runs.fork(run.head or "").id)
    assert fork.status == Status.COMPLETED
    assert run_actions.state(fork)["free"] == "10.00"


def test_what_was_signed_cannot_be_patched_in_a_version_that_has_no_gate_to_ask_at(
    people: cast.People,
) -> None:
    run = signed_letter(people)
    deployed(paying("2", nodes=("fetch", "file", "send")))
    patch = {"scratch": {"letter": "Other"}}
    for refused in (
        lambda: runs.fork(run.head, patch=patch),
        lambda: runs.plan(run.head, patch=patch),
    ):
        with pytest.raises(
            InvalidValue,
            match="letter was signed at the gate of node propose, and version 2",
        ) as refusal:
            refused()
        assert refusal.value.facts["gate"] == "propose"
    assert runs.plan(run.head, patch={"scratch": {"total": 5}}).guarded == {}
    assert runs.advance(runs.fork(run.head).id).status == Status.COMPLETED


def finished(people: cast.People, **options: Any) -> Run:
    """A run of version 1 that was signed and has ended; its total is 3."""
    run = advanced(paying("1", **options))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    return run


def in_cents(state: Any) -> None:
    """A migration that no type tells: the total counts something else."""
    state["scratch"]["total"] *= 100


def deployed_with(flow: Graph, migrates: Any) -> None:
    flow.migration(from_version="1")(migrates)
    deployed(flow)


def at_total(run: Run) -> str:
    """The checkpoint at which the total is set, and people are not asked yet."""
    return f"{run.key}:at-1"


@pytest.mark.parametrize(
    ("state", "migrates", "total"),
    [(Notes, in_cents, 300), (Texts, in_euros, "3 euros")],
    ids=["meaning", "type"],
)
def test_a_fork_goes_onto_another_version_by_its_migration(
    state: Any, migrates: Any, total: Any, people: cast.People
) -> None:
    run = finished(people)
    deployed_with(paying("2", state), migrates)
    assert runs.plan(at_total(run)).patched == ("total",)
    fork = runs.fork(at_total(run), by=people.starter)
    assert fork.version == "2"
    assert run_actions.state(fork)["total"] == total
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.PAUSED
    run_actions.sign(new_run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(new_run.id).status == Status.COMPLETED
    assert run_actions.state(new_run)["notes"] == [f"sent Dear {total}"]
    assert not list(verify_run(new_run.id))
    replayed = runs.replay(at_total(run), by=people.starter)
    assert run_actions.state(replayed)["total"] == total


def test_a_rewind_to_before_a_migration_goes_by_it_again(people: cast.People) -> None:
    run = advanced(paying("1"))
    deployed_with(paying("2"), in_cents)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.version == "2"
    assert run_actions.state(run)["total"] == 300
    runs.rewind(run.id, at_total(run), reason="once more", by=people.starter)
    assert run_actions.state(run)["total"] == 300


def test_a_migration_takes_a_channel_out_of_a_fork_and_without_one_it_is_refused(
    people: cast.People,
) -> None:
    class Fewer(BaseModel):
        notes: Annotated[list[str], Append] = []
        letter: str = ""

    run = finished(people, nodes=("fetch", "propose", "file"))
    nodes = ("propose", "file")
    deployed(paying("2", Fewer, nodes=nodes))
    with pytest.raises(IncompatibleGraph, match="lacks channel total"):
        runs.fork(run.head or "", by=people.starter)
    deployed_with(
        paying("3", Fewer, nodes=nodes),
        lambda state: state["scratch"].pop("total") and None,
    )
    fork = runs.fork(run.head or "", by=people.starter)
    assert run_actions.state(fork) == {"notes": [], "letter": "Dear"}


def test_what_a_migration_makes_of_a_signed_channel_waits_in_a_fork_for_its_signatures(
    people: cast.People,
) -> None:
    run = finished(people, nodes=("fetch", "propose", "file"))
    flow = paying("2", nodes=("fetch", "propose", "file"))
    deployed_with(
        flow,
        lambda state: state["scratch"].update(
            letter=f"{state['scratch']['letter']} all"
        ),
    )
    behind = f"{run.key}:at-3"
    assert runs.plan(behind).guarded == {"letter": "propose"}
    fork = runs.advance(runs.fork(behind, by=people.starter).id)
    assert fork.at_node == "$patch"
    assert run_actions.state(fork)["letter"] == "Dear"
    assert str(read_value(ApprovalRequest.objects.get(run=fork.id), "why")).startswith(
        "The migration from 1 to 2 set"
    )
    run_actions.sign(fork, people.reviewer, ["approve"])
    assert run_actions.state(runs.advance(fork.id))["letter"] == "Dear all"


def loses_letter(state: Any) -> None:
    state["scratch"]["total"] = state["scratch"].pop("nothing")


def signs_anew(state: Any) -> None:
    state["scratch"]["letter"] = "Pay"


@pytest.mark.parametrize(
    ("made", "migrates", "at", "said"),
    [
        (
            lambda: paying("2"),
            loses_letter,
            1,
            "migration from 1 to 2 failed: KeyError",
        ),
        (
            lambda: paying("2", nodes=("fetch", "send")),
            signs_anew,
            4,
            "has no gate where it could",
        ),
        (
            lambda: paying("2", Lettered),
            lambda state: state["scratch"].update(letter=1),
            2,
            "no migration sees it",
        ),
    ],
    ids=["fails", "has no gate", "waits"],
)
def test_a_fork_whose_migration_cannot_be_taken_is_refused_and_nothing_is_written(
    made: Any, migrates: Any, at: int, said: str, people: cast.People
) -> None:
    run = finished(people)
    deployed_with(made(), migrates)
    for act in (runs.plan, runs.fork):
        with pytest.raises(InvalidValue, match=said):
            act(f"{run.key}:at-{at}")
    assert Run.objects.count() == 1


def test_a_version_that_would_do_again_what_an_open_superstep_has_done_takes_no_fork(
    people: cast.People,
) -> None:
    fails = True

    def act(state: Any, ctx: Any) -> None:
        if fails:
            raise RuntimeError("not yet")

    def side_by_side(version: str, *more: tuple[str, str]) -> Graph:
        flow = Graph("beside", version=version, input=Order, state=Notes)
        flow.node("a")(act)
        flow.node("pay", effect="external", idempotent=True)(
            lambda state, ctx: PAID.append("paid")
        )
        for source, target in (
            (START, "a"),
            (START, "pay"),
            ("a", END),
            ("pay", END),
            *more,
        ):
            flow.edge(source, target)
        return flow

    PAID.clear()
    run = advanced(side_by_side("1"))
    assert run.status == Status.FAILED
    assert PAID == ["paid"]
    deployed(side_by_side("2", ("a", "pay")))
    fails = False
    with pytest.raises(IncompatibleGraph, match="would not begin pay:1:0"):
        runs.fork(run.head or "", allow_effects=["pay"], by=people.starter)
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.INCOMPATIBLE
    assert PAID == ["paid"]
    deployed(side_by_side("1"))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert PAID == ["paid"]
    assert not list(verify_run(run.id))


def test_a_version_of_another_input_takes_no_fork(people: cast.People) -> None:
    class Given(BaseModel):
        claim: str

    run = finished(people)
    flow = paying("2")
    flow.input = Given
    deployed(flow)
    with pytest.raises(IncompatibleGraph, match="has another input"):
        runs.fork(at_total(run), by=people.starter)
