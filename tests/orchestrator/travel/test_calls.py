"""Forks, rewinds and replays of runs whose nodes are called once people approved."""

import itertools
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from checkpoints import bundle
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.store import CheckpointStore
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Graph
from orchestrator.engine.errors import UnknownThing
from tests.support import deadlines, histories, run_actions
from tests.support.bundles import forgotten
from tests.support.call_graphs import call_gate, paying, paying_beside, paying_many
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


def paid(ada: User, **options: Any) -> Run:
    run = advanced(paying(**options))
    run_actions.sign(run, ada, ["approve"])
    return runs.advance(run.id)


def names(tasks: Any) -> list[str]:
    return [str(task) for task in tasks]


def test_a_plan_from_before_the_approval_says_whom_it_asks(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    for point in ("initial", "at-1"):
        plan = runs.plan(f"{run.key}:{point}")
        assert names(plan.asks) == ["pay:1:0"]
        assert names(plan.effects_again) == ["pay:1:0"]
        assert "pay:1:0" in names(plan.may_run)


def test_a_plan_from_after_the_approval_says_that_the_call_runs(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    plan = runs.plan(f"{run.key}:at-2")
    assert names(plan.asks) == []
    assert names(plan.effects_again) == ["pay:1:0"]
    plan = runs.plan(f"{run.key}:at-2", allow_effects=["pay"])
    assert "pay:1:0" in names(plan.runs)


def test_a_plan_lists_a_call_that_waits_in_a_superstep_that_failed(
    made: list[Any], ada: User
) -> None:
    failures = iter([True])
    graph = paying("beside_a_failure")

    @graph.node()
    def other(state: Any, ctx: Any) -> None:
        if next(failures, False):
            raise RuntimeError("not yet")

    graph.edge(START, "other")
    graph.edge("other", END)
    run = advanced(graph)
    assert run.status == Status.FAILED
    failed = run.head
    assert failed is not None
    plan = runs.plan(failed)
    assert names(plan.may_run) == ["pay:1:0", "paid:1:0", "refused:1:0"]
    assert names(plan.reused) == []

    # Paid in the meantime, it would be paid again.
    runs.resume(run.id, by=ada)
    runs.advance(run.id)
    run_actions.sign(run, ada, ["approve"])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert names(runs.plan(failed).effects_again) == ["pay:1:0"]


def test_a_plan_lists_each_call_of_a_fan_out_as_what_it_is(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_many(payees=("ada", "bob", "cyd", "dan")))
    run_actions.sign(run, ada, ["approve", "approve", "reject", None])
    run = runs.advance(run.id)
    assert len(made) == 2
    waiting = f"{run.key}:at-2"
    plan = runs.plan(waiting)
    assert names(plan.asks) == [f"pay:1:{index}" for index in range(4)]
    assert names(plan.may_run) == [*names(plan.asks), "paid:1:0", "refused:1:0"]
    assert names(plan.effects_again) == ["pay:1:0", "pay:1:1"]

    settled = f"{run.key}:at-3"
    plan = runs.plan(settled, allow_effects=["pay"])
    assert names(plan.runs) == ["pay:1:0", "pay:1:1"]
    assert names(plan.may_run) == ["pay:1:3", "paid:1:0", "refused:1:0"]
    assert names(plan.asks) == ["pay:1:3"]
    # Without a yes none of them is certain.
    plan = runs.plan(settled)
    assert names(plan.runs) == []
    assert names(plan.may_run)[:3] == ["pay:1:0", "pay:1:1", "pay:1:3"]

    plan = runs.plan(settled, how="replay")
    assert names(plan.reused)[:3] == ["pay:1:3", "pay:1:0", "pay:1:1"]


def test_a_fork_where_a_call_waits_asks_again_about_the_same_call(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_beside())
    head = Run.objects.get(id=run.id).head
    fork = runs.advance(runs.fork(head, by=ada).id)
    assert fork.status == Status.PAUSED
    request = ApprovalRequest.objects.get(run=fork)
    assert request.kind == "call"
    run_actions.sign(fork, ada, ["approve"])
    fork = runs.advance(fork.id)
    # On the state from which its origin had prepared it.
    assert [amount for _, amount, _ in made] == [Decimal(10)]
    assert verify_run(fork.id) == []
    assert verify_run(run.id) == []


def test_a_fork_from_after_the_approval_runs_the_call_once_it_has_a_yes(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    fork = runs.advance(runs.fork(f"{run.key}:at-2", by=ada).id)
    assert fork.status == Status.PAUSED
    assert len(made) == 1
    fork = runs.advance(runs.resume(fork.id, allow_effects=["pay"], by=ada).id)
    assert fork.status == Status.COMPLETED
    assert len(made) == 2
    assert not ApprovalRequest.objects.filter(run=fork).exists()
    # Another run has another key.
    assert made[0][0] == made[1][0]
    assert made[0][2] != made[1][2]
    assert verify_run(fork.id) == []


def test_a_rewind_to_before_the_call_asks_again(made: list[Any], ada: User) -> None:
    run = paid(ada)
    run = runs.rewind(run.id, f"{run.key}:initial", allow_effects=["pay"], by=ada)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert len(made) == 1
    open_requests = ApprovalRequest.objects.filter(run=run, line=2, status="open")
    assert open_requests.count() == 1
    run_actions.sign_open(run, ada, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(made) == 2
    assert verify_run(run.id) == []


def test_a_fork_answers_the_call_that_waits(made: list[Any], ada: User) -> None:
    run = advanced(paying())
    head = Run.objects.get(id=run.id).head
    answer = {"payee": "bob", "amount": "3"}
    fork = runs.fork(head, answers={"pay": {"$call": answer}}, by=ada)
    fork = runs.advance(fork.id)
    assert fork.status == Status.COMPLETED
    assert (made[0][0].payee, made[0][0].amount) == ("bob", Decimal(3))
    assert verify_run(fork.id) == []


@pytest.mark.parametrize("point", ["initial", "at-1", "at-2"])
def test_a_replay_calls_nothing_and_asks_nobody(
    made: list[Any], ada: User, point: str
) -> None:
    run = paid(ada)
    replay = runs.advance(runs.replay(f"{run.key}:{point}", by=ada).id)
    assert replay.status == Status.COMPLETED
    assert runs.replay_report(replay.id)["diverged"] == []
    assert run_actions.state(replay)["notes"] == ["paid 10 to ada", "paid"]
    assert len(made) == 1
    assert not ApprovalRequest.objects.filter(run=replay).exists()
    assert verify_run(replay.id) == []


def test_a_replay_of_a_call_that_needed_nobody_calls_nothing(
    made: list[Any], ada: User
) -> None:
    gate = call_gate(needs_approval=lambda state, proposal: False)
    run = advanced(paying(gate=gate))
    replay = runs.advance(runs.replay(f"{run.key}:initial", by=ada).id)
    assert replay.status == Status.COMPLETED
    assert runs.replay_report(replay.id)["diverged"] == []
    assert run_actions.state(replay)["notes"] == ["paid 10 to ada", "paid"]
    assert len(made) == 1
    assert verify_run(replay.id) == []


def test_a_replay_of_a_rejected_call_takes_its_edge(made: list[Any], ada: User) -> None:
    run = advanced(paying())
    run_actions.sign(run, ada, ["reject"])
    run = runs.advance(run.id)
    replay = runs.advance(runs.replay(f"{run.key}:initial", by=ada).id)
    assert run_actions.state(replay)["notes"] == ["refused"]
    assert made == []
    assert verify_run(replay.id) == []


def test_retention_keeps_the_state_of_a_call_that_a_fork_has_yet_to_make(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    fork = runs.advance(runs.fork(f"{run.key}:at-2", by=ada).id)
    rule = histories.policy(run.graph, keep_last=0)
    histories.pruned(rule)
    fork = runs.advance(runs.resume(fork.id, allow_effects=["pay"], by=ada).id)
    assert fork.status == Status.COMPLETED
    assert len(made) == 2
    prepared = ApprovalRequest.objects.get(run=run).prepared_from
    histories.pruned(rule)
    assert not Checkpoint.objects.filter(id=prepared).exists()


def test_a_call_of_an_encrypted_run_is_forked_replayed_and_verified(
    made: list[Any], ada: User, configure: Any
) -> None:
    configure(ENCRYPTION_KEYS={"one": bytes(range(32))})
    run = paid(ada, encrypted=True)
    assert run.status == Status.COMPLETED
    assert run_actions.pending(run)[0].label == "pay"
    fork = runs.fork(f"{run.key}:at-2", allow_effects=["pay"], by=ada)
    fork = runs.advance(fork.id)
    replay = runs.advance(runs.replay(f"{run.key}:initial", by=ada).id)
    for each in (run, fork, replay):
        assert verify_run(each.id) == []
        assert run_actions.state(each)["notes"] == ["paid 10 to ada", "paid"]
    assert len(made) == 2


@pytest.mark.parametrize("approved", [False, True])
def test_a_bundle_of_a_run_with_a_call_verifies_and_is_imported(
    made: list[Any], ada: User, approved: bool, tmp_path: Path
) -> None:
    run = advanced(paying())
    if approved:
        run_actions.sign(run, ada, ["approve"])
        run = runs.advance(run.id)
    file = tmp_path / "call.jsonl"
    bundle.export(run.id, file)
    assert bundle.verify(file, bundle.public_key()).ok
    forgotten(run)
    bundle.load(file)
    imported = Run.objects.get()
    assert imported.imported
    assert verify_run(imported.id) == []


def pruned(graph: str) -> None:
    """Remove every checkpoint that nothing needs."""
    histories.pruned(histories.policy(graph, keep_last=0))


def beside_a_failure(failures: int = 1, **options: Any) -> Graph:
    """A graph in which a call is made beside a node that fails at first."""
    counted = itertools.count(1)
    graph = paying(**options)
    # Both start once the call has been approved.
    graph.edges[:] = [edge for edge in graph.edges if edge.source != START]

    @graph.node()
    def begin(state: Any, ctx: Any) -> None:
        return None

    graph.edge(START, "begin")
    graph.edge("begin", "pay")

    @graph.node("beside", effect="human", gate=call_gate(writes={}))
    def beside(state: Any, ctx: Any) -> dict[str, Any]:
        return {"people": ["bob"]}

    @graph.node()
    def fails(state: Any, ctx: Any) -> None:
        if next(counted) <= failures:
            raise RuntimeError("not yet")

    graph.edge("begin", "beside")
    graph.edge("beside", "fails", when=("approved", "partial"))
    graph.edge("fails", END)
    return graph


def test_a_call_that_was_made_beside_a_failure_needs_no_state_any_more(
    made: list[Any], ada: User
) -> None:
    run = advanced(beside_a_failure())
    assert run.status == Status.PAUSED
    run_actions.sign_open(run, ada, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert len(made) == 1
    pruned(run.graph)
    prepared = ApprovalRequest.objects.get(run=run, kind="call").prepared_from
    assert not Checkpoint.objects.filter(id=prepared).exists()
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert verify_run(run.id) == []


def test_retention_keeps_the_state_of_a_call_whose_result_no_checkpoint_lists(
    made: list[Any], ada: User
) -> None:
    run = advanced(paying_beside())
    run_actions.sign(run, ada, ["approve"])
    # The process dies when the result is written, and before its superstep commits.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.execution.commit.commit_superstep", _die)
        with pytest.raises(KeyboardInterrupt):
            runs.advance(run.id)
    assert TaskResult.objects.get(run=run).outcome == Outcome.DONE
    Run.objects.filter(id=run.id).update(lease_until=None, status=Status.QUEUED)
    pruned(run.graph)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(made) == 1
    assert verify_run(run.id) == []


def _die(*args: Any) -> Any:
    raise KeyboardInterrupt


def test_retention_keeps_the_state_of_a_call_that_is_asked_about_again(
    made: list[Any], ada: User
) -> None:
    gate = call_gate(deadline=timedelta(hours=1), on_deadline="fail")
    run = advanced(paying_beside(gate=gate))
    deadlines.let_come(run)
    deadlines.work_off(run)
    run = runs.advance(run.id)
    assert run.status == Status.FAILED
    pruned(run.graph)
    run = runs.advance(runs.resume(run.id).id)
    assert run.status == Status.PAUSED
    run_actions.sign_open(run, ada, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert [amount for _, amount, _ in made] == [Decimal(10)]
    assert verify_run(run.id) == []


def test_retention_keeps_the_state_of_a_call_that_a_fork_of_a_fork_has_yet_to_make(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    fork = runs.advance(runs.fork(f"{run.key}:at-2", by=ada).id)
    assert fork.head is not None
    second = runs.advance(runs.fork(fork.head, by=ada).id)
    runs.cancel(fork.id, by=ada, reason="over")
    pruned(run.graph)
    second = runs.advance(runs.resume(second.id, allow_effects=["pay"], by=ada).id)
    assert second.status == Status.COMPLETED
    assert len(made) == 2
    assert verify_run(second.id) == []


def test_retention_keeps_the_state_of_a_call_for_a_fork_that_a_store_made(
    made: list[Any], ada: User
) -> None:
    run = paid(ada)
    row = CheckpointStore().fork(f"{run.key}:at-2")
    pruned(run.graph)
    fork = runs.resume(row.run, allow_effects=["pay"], by=ada)
    fork = runs.advance(fork.id)
    assert fork.status == Status.COMPLETED
    assert len(made) == 2


@pytest.mark.parametrize("point", ["at-1", "at-2"])
def test_a_fork_to_a_call_whose_state_was_removed_is_refused(
    made: list[Any], ada: User, point: str
) -> None:
    run = paid(ada)
    histories.pruned(histories.policy(run.graph, keep_last=5 - int(point[-1])))
    prepared = ApprovalRequest.objects.get(run=run).prepared_from
    assert not Checkpoint.objects.filter(id=prepared).exists()
    with pytest.raises(UnknownThing, match="was prepared is gone"):
        runs.plan(f"{run.key}:{point}")
    with pytest.raises(UnknownThing, match="was prepared is gone"):
        runs.fork(f"{run.key}:{point}", allow_effects=["pay"], by=ada)
    assert not Run.objects.exclude(id=run.id).exists()
