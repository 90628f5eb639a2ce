"""Going back to where a superstep is open, or where memory would land again, and other
corners of stops and patches.
"""

from typing import Any

import pytest

from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import MemoryTrace, Run, RunLine
from checkpoints.store import CheckpointStore
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Task, Write
from orchestrator.engine.errors import InvalidValue, TamperedRow, WrongStatus
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim, paid
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)

BROKEN: list[bool] = []


def _beside(name: str, **options: Any) -> Graph:
    """pay (external), ask (human, writes total) and b (fails while BROKEN) in one
    superstep.
    """
    flow = graph(name)
    flow.node("pay", effect="external", idempotent=True)(
        lambda state, ctx: PAID.append("pay")
    )  # type: ignore[arg-type]
    gate = Gate(reviewers=["group:claims"], writes={"total": Show()})
    flow.node("ask", effect="human", gate=gate)(lambda state, ctx: [Write("total", 10)])
    flow.node("b", **options)(lambda state, ctx: {"notes": [f"b {1 // (not BROKEN)}"]})
    for node in ("pay", "ask", "b"):
        flow.edge(START, node)
        flow.edge(node, END)
    return flow


@pytest.fixture(autouse=True)
def everything_is_fresh() -> None:
    PAID.clear()
    BROKEN[:] = [True]


def test_a_failed_run_is_resumed_with_a_guarded_patch_once_it_is_signed(
    people: cast.People,
) -> None:
    run = advanced(_beside("guarded_open"))
    rita = run_actions.reviewer(people.reviewer)
    assert run.status == Status.FAILED
    assert PAID == ["pay"]
    BROKEN.clear()
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"total": 3}}, by=people.starter).id
    )
    assert run.status == Status.PAUSED
    assert run_actions.state(run)["notes"] == []
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED, "what it was asked on was patched"
    assert run.at_node == "ask", "what it was asked on was patched"
    assert PAID == ["pay"], "what it was asked on was patched"
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["b 1"]
    assert PAID == ["pay"]
    assert list(verify_run(run.id)) == []


def test_a_rejected_patch_of_an_open_superstep_ends_the_run(
    people: cast.People,
) -> None:
    run = advanced(_beside("rejected_open"))
    rita = run_actions.reviewer(people.reviewer)
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"total": 3}}, by=people.starter).id
    )
    run_actions.sign(
        run,
        rita,
        [
            "reject" if row.node == "$patch" else None
            for row in run_actions.pending(run)
        ],
    )
    run = runs.advance(run.id)
    assert run.status == Status.REJECTED
    assert PAID == ["pay"]
    assert list(verify_run(run.id)) == []


def test_a_signature_beside_a_node_that_waits_for_a_yes_is_applied_when_it_has_it(
    people: cast.People,
) -> None:
    flow = graph("stopped_open")

    def pay(state: Any, ctx: Any) -> None:
        PAID.append("pay")
        if BROKEN:
            raise RuntimeError

    flow.node("pay", effect="external")(pay)
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", "x")]
    )
    for node in ("pay", "ask"):
        flow.edge(START, node)
        flow.edge(node, END)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    BROKEN.clear()
    made_fork = runs.advance(runs.fork(f"{run.key}:at-1", by=people.starter).id)
    assert made_fork.status == Status.PAUSED
    assert made_fork.at_node == "pay"
    run_actions.sign_open(made_fork, run_actions.reviewer(people.reviewer), "approve")
    made_fork = runs.advance(made_fork.id)
    assert made_fork.status == Status.PAUSED
    assert PAID == ["pay"]
    made_fork = runs.advance(
        runs.resume(made_fork.id, allow_effects=["pay"], by=people.starter).id
    )
    assert made_fork.status == Status.COMPLETED
    assert run_actions.state(made_fork)["letter"] == "x"


def test_a_task_that_failed_beside_a_stop_runs_again_without_that_yes(
    people: cast.People,
) -> None:
    flow = graph("failed_beside")
    flow.node("pay", effect="external", idempotent=True)(
        lambda state, ctx: PAID.append("pay")
    )  # type: ignore[arg-type]
    flow.node("a")(lambda state, ctx: {"notes": [f"a {1 // (not BROKEN)}"]})
    flow.edge(START, "pay")
    flow.edge(START, "a")
    flow.edge("pay", END)
    flow.edge("a", END)
    BROKEN.clear()
    run = advanced(flow)
    BROKEN.append(True)
    fork = runs.advance(runs.fork(f"{run.key}:initial", by=people.starter).id)
    assert fork.status == Status.FAILED
    assert PAID == ["pay"]
    BROKEN.clear()
    fork = runs.advance(runs.resume(fork.id, by=people.starter).id)
    assert fork.status == Status.PAUSED
    assert run_actions.state(fork)["notes"] == ["a 1"]
    assert fork.at_node == "pay"
    fork = runs.advance(
        runs.resume(fork.id, allow_effects=["pay"], by=people.starter).id
    )
    assert fork.status == Status.COMPLETED
    assert PAID == ["pay", "pay"]


def test_what_was_remembered_at_a_gate_is_not_remembered_again_without_a_yes(
    people: cast.People,
) -> None:
    flow = graph("remembers_at_a_gate")

    def propose(state: Any, ctx: Any) -> None:
        ctx.memory.put("k", "v", "gated space")

    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(propose)
    flow.edge(START, "ask")
    flow.edge("ask", END)
    run = advanced(flow)
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == Status.COMPLETED
    plan = runs.plan(f"{run.key}:at-1")
    assert plan.effects_again == (Task("ask", 1, 0),)
    assert plan.needs_yes == ["ask"]
    fork = runs.advance(runs.fork(f"{run.key}:at-1", by=people.starter).id)
    run_actions.sign_open(fork, rita, "approve")
    fork = runs.advance(fork.id)
    assert fork.status == Status.PAUSED
    assert fork.at_node == "ask"
    assert MemoryTrace.objects.get().version == 1
    fork = runs.advance(
        runs.resume(fork.id, allow_effects=["ask"], by=people.starter).id
    )
    assert fork.status == Status.COMPLETED
    assert MemoryTrace.objects.get().version == 2


def test_a_store_s_patch_is_not_laundered_by_going_back_before_it_was_signed(
    people: cast.People,
) -> None:
    run = paid("adopted", people)
    settled = timeline.list_checkpoints(run.id)[1]
    stored = CheckpointStore().fork(settled.id, {"scratch": {"total": 9999}})
    fork = runs.advance(
        runs.resume(stored.run, allow_effects=["pay"], by=people.starter).id
    )
    assert fork.status == Status.PAUSED
    assert run_actions.state(fork)["total"] == 10
    again = CheckpointStore().fork(f"{fork.key}:initial")
    for made in (
        runs.fork(f"{fork.key}:initial", allow_effects=["pay"], by=people.starter),
        runs.resume(again.run, allow_effects=["pay"], by=people.starter),
        runs.rewind(
            fork.id, f"{fork.key}:initial", allow_effects=["pay"], by=people.starter
        ),
    ):
        made = runs.advance(made.id)
        assert made.status == Status.PAUSED
        assert run_actions.state(made)["total"] == 10
    assert len(PAID) == 1


def test_who_guards_a_channel_is_who_wrote_it_last_on_the_way(
    people: cast.People,
) -> None:
    flow = graph("two_writers")
    for name, group in (("cfo", "group:claims"), ("clerk", "group:clerks")):
        flow.node(name, effect="human", gate=Gate(reviewers=[group]))(
            lambda state, ctx: [Write("letter", ctx.node)]
        )
    flow.edge(START, "cfo")
    flow.edge("cfo", "clerk")
    flow.edge("clerk", END)
    run = advanced(flow)
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    clerk = people.second_reviewer
    clerk.groups.create(name="clerks")
    run_actions.sign_open(run, clerk, "approve")
    assert runs.advance(run.id).status == Status.COMPLETED
    patch = {"scratch": {"letter": "mine"}}
    guards = [
        runs.plan(f"{run.key}:at-{seq}", patch=patch).guarded["letter"]
        for seq in (2, 3, 4)
    ]
    assert guards == ["cfo", "cfo", "clerk"]


def test_a_channel_written_past_a_gate_that_needed_nobody_is_guarded(
    people: cast.People,
) -> None:
    flow = graph("waived_guard")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: False
    )
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", "x")]
    )
    flow.edge(START, "ask")
    flow.edge("ask", END)
    run = advanced(flow)
    assert runs.plan(f"{run.key}:at-1", patch={"scratch": {"letter": "y"}}).guarded == {
        "letter": "ask"
    }


def test_a_cancelled_run_that_was_rewound_verifies(people: cast.People) -> None:
    run = advanced(claim("cancelled_then_rewound"))
    runs.cancel(run.id, by=people.starter, reason="no")
    run = runs.advance(runs.rewind(run.id, f"{run.key}:at-1", by=people.starter).id)
    assert run.status == Status.PAUSED
    assert list(verify_run(run.id)) == []
    runs.cancel(run.id, by=people.starter, reason="no")
    assert list(verify_run(run.id)) == []


def test_a_line_whose_row_is_gone_is_named(people: cast.People) -> None:
    run = advanced(claim("line_gone"))
    fork = runs.fork(f"{run.key}:at-1", by=people.starter)
    RunLine.objects.filter(run=fork).delete()
    (fault, *_) = verify_run(fork.id)
    assert "checkpoints_runline" in fault.what
    with pytest.raises(TamperedRow, match="line 1"):
        runs.plan(f"{fork.key}:initial")


def test_a_fork_that_was_not_started_does_not_start_by_a_signature(
    people: cast.People,
) -> None:
    run = advanced(claim("not_started"))
    fork = runs.fork(f"{run.key}:at-2", start=False, by=people.starter)
    run_actions.sign_open(fork, run_actions.reviewer(people.reviewer), "approve")
    fork = runs.advance(fork.id)
    assert fork.status == Status.PAUSED
    assert PAID == []
    assert (
        runs.advance(runs.resume(fork.id, by=people.starter).id).status
        == Status.COMPLETED
    )
    assert len(PAID) == 1


def test_a_mutator_that_returns_something_else_is_refused(people: cast.People) -> None:
    run = advanced(claim("mutators"))
    for wrong in (
        lambda state: [1],
        lambda state: {"input": {}},
        lambda state: {"scratch": 1},
    ):
        with pytest.raises(InvalidValue):
            runs.fork(f"{run.key}:at-1", patch=wrong, by=people.starter)
    fork = runs.fork(
        f"{run.key}:at-1",
        patch=lambda state: {"scratch": {"letter": "x"}},
        by=people.starter,
    )
    assert run_actions.state(fork)["letter"] == "x"
    assert run_actions.state(fork)["notes"] == ["first"]


def test_a_store_s_fork_is_resumed_with_a_patch_of_its_own(people: cast.People) -> None:
    run = advanced(claim("adopt_and_patch"))
    stored = CheckpointStore().fork(f"{run.key}:at-1")
    fork = runs.resume(
        stored.run, patch={"scratch": {"letter": "x"}}, by=people.starter
    )
    assert fork.line == 2
    assert run_actions.state(fork)["letter"] == "x"
    assert Run.objects.count() == 2
    with pytest.raises(WrongStatus):
        runs.resume(runs.advance(fork.id).id, patch={}, by=people.starter)
