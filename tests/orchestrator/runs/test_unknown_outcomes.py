"""An outcome that nobody knows is settled by a person, once, and stays settled."""

import time
from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import LateResult, Run, TaskResult, Worker
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Retry, Task, registry
from orchestrator.engine.errors import InvalidValue, UnknownThing, WrongStatus
from orchestrator.runs import version_choice
from tests.support import cast, run_actions
from tests.support.chain import join_in_a_row
from tests.support.forging import rewrite
from tests.support.processes import until
from tests.support.rows import a_worker
from tests.support.run_actions import state
from tests.support.small_graphs import advanced, graph, held, slice_of, started
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_unknown_task_is_settled_when_its_superstep_has_stopped_and_not_while_siblings_still_run(
    people: cast.People,
) -> None:
    flow = graph("unknown-beside-slow")
    seen = []

    @flow.node(effect="external")
    def broken(state: Any, ctx: Any) -> None:
        raise RuntimeError("the line broke")

    @flow.node()
    def slow(state: Any, ctx: Any) -> None:
        until(
            lambda: TaskResult.objects.filter(
                run=ctx.run_id, outcome="unknown"
            ).exists(),
            what="the unknown task",
        )
        try:
            runs.settle(
                ctx.run_id,
                "broken:1:0",
                happened=False,
                by=people.steward,
                reason="too early",
            )
        except WrongStatus as error:
            seen.append(error)

    for name in ("broken", "slow"):
        flow.edge(START, name)
        flow.edge(name, END)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    assert seen
    runs.settle(run.id, "broken:1:0", happened=True, by=people.steward, reason="seen")
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_timeout_is_unknown_even_if_timeout_errors_of_the_node_mean_not_done() -> (
    None
):
    flow = graph("timeout-not-done")
    calls = []

    @flow.node(
        effect="external",
        timeout=0.2,
        not_done=(OSError,),
        retry=Retry(attempts=3, backoff=0.01, on=(OSError,)),
    )
    def send(state: Any, ctx: Any) -> None:
        calls.append(ctx.attempt)
        time.sleep(0.6)

    flow.edge(START, "send")
    flow.edge("send", END)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    time.sleep(0.6)
    assert calls == [1], "nothing is tried again while the first thread may still act"


def test_a_result_after_the_drain_is_kept_as_evidence_and_proves_that_its_thread_ended(
    people: cast.People, configure: Any
) -> None:
    configure(GRACE_SECONDS=0)
    flow = graph("drained-while-sending")
    calls = []

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        calls.append(ctx.attempt)
        time.sleep(1.0 if len(calls) == 1 else 0)
        return {"letter": "sent"}

    flow.edge(START, "send")
    flow.edge("send", END)
    run = slice_of(started(flow), draining=lambda: bool(calls))
    assert run.status == Status.QUEUED
    assert runs.advance(run.id).status == Status.UNKNOWN
    until(lambda: LateResult.objects.filter(run=run).exists(), what="the evidence")
    assert TaskResult.objects.get(run=run).thread_ended_at is not None
    runs.settle(
        run.id,
        "send:1:0",
        happened=False,
        by=people.steward,
        reason="its letter was called back",
    )
    assert runs.advance(run.id).status == Status.COMPLETED
    assert calls == [1, 2]


def test_a_result_that_came_before_the_grace_was_over_is_used_and_its_effect_not_repeated(
    configure: Any,
) -> None:
    configure(GRACE_SECONDS=0)
    flow = graph("ready-at-the-end-of-grace")
    calls = list[str]()

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        calls.append("sent")
        return {"letter": "sent"}

    @flow.node()
    def slow(state: Any, ctx: Any) -> None:
        if "drain" not in calls:
            time.sleep(0.3)
            calls.append("drain")
            time.sleep(0.8)

    for name in ("send", "slow"):
        flow.edge(START, name)
        flow.edge(name, END)
    run = slice_of(started(flow), draining=lambda: "drain" in calls)
    assert run.status == Status.QUEUED
    assert runs.advance(run.id).status == Status.COMPLETED
    assert calls == ["sent", "drain"]


def test_what_the_system_settled_is_used_even_where_the_input_differs() -> None:
    flow = graph("settled-by-nobody")

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        raise RuntimeError("the line broke")

    flow.edge(START, "send")
    flow.edge("send", END)
    run = advanced(flow)
    rewrite(TaskResult.objects.get(run=run), input_hash="0" * 64)
    runs.settle(run.id, "send:1:0", happened=True, by=None, reason="seen")
    assert runs.advance(run.id).status == Status.COMPLETED


def test_unknown_comes_before_failed_where_a_gate_beside_it_cannot_be_opened(
    people: cast.People,
) -> None:
    flow = graph("unknown-beside-broken-gate")

    def nobody(state: Any) -> list[str]:
        raise RuntimeError("the directory is down")

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        raise RuntimeError("the line broke")

    @flow.node(effect="human", gate=Gate(reviewers=nobody))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    for name in ("send", "propose"):
        flow.edge(START, name)
        flow.edge(name, END)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    runs.settle(run.id, "send:1:0", happened=True, by=people.steward, reason="seen")
    assert runs.advance(run.id).status == Status.FAILED


def test_a_recorded_result_for_another_input_is_not_used_and_a_person_must_say_what_holds(
    people: cast.People,
) -> None:
    ran: list[str] = []
    flow = graph("changed_input")
    flow.node("act", effect="external")(
        lambda state, ctx: ran.append("act") or {"notes": ["ran"]}
    )
    flow.edge(START, "act")
    flow.edge("act", END)
    run = started(flow)
    lease = held(run)
    task = Task("act", 1)
    journal.write_intents(lease, [journal.Intent(task, 1, "external", "0" * 64, 0.0)])
    recorded = {
        "writes": [{"channel": "notes", "value": ["old"], "label": None}],
        "goto": None,
        "sends": [],
    }
    journal.write_results(lease, [journal.Ending(task, 1, "done", recorded)])
    leases.give_back(lease.id, lease.epoch)
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert ran == []
    runs.settle(
        run.id,
        "act:1:0",
        happened=True,
        output={"notes": ["as settled"]},
        by=people.starter,
        reason="seen",
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["as settled"]
    assert ran == []


def _asking_before(version: str, *names: str) -> Graph:
    """ask proposes a letter and people sign it; pay breaks, and nobody knows whether it
    happened.
    """
    flow = graph("asking-before", version=version)
    acts: dict[str, Any] = {
        "ask": lambda state, ctx: {"letter": "Dear"},
        "pay": _broken,
    }
    options: dict[str, Any] = {
        "ask": {"effect": "human", "gate": Gate(reviewers=["group:claims"])},
        "pay": {"effect": "external"},
    }
    for name in names:
        flow.node(name, **options.get(name, {}))(
            acts.get(name, lambda state, ctx: None)
        )
    join_in_a_row(flow, *names)
    return flow


def _broken(state: Any, ctx: Any) -> None:
    raise RuntimeError("the line broke")


def _unknown_after_signing(people: cast.People) -> Run:
    run = advanced(_asking_before("1", "ask", "between", "pay"))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    return run


def test_an_output_settled_on_a_version_without_its_gate_writes_nothing_that_was_signed(
    people: cast.People,
) -> None:
    run = _unknown_after_signing(people)
    deployed(_asking_before("2", "between", "pay"))
    arguments: dict[str, Any] = {
        "happened": True,
        "by": people.steward,
        "reason": "seen",
    }
    with pytest.raises(InvalidValue, match="letter was signed at the gate of node ask"):
        runs.settle(run.id, "pay:1:0", output={"letter": "Yours"}, **arguments)
    runs.settle(run.id, "pay:1:0", output={"notes": ["paid"]}, **arguments)
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_settled_output_moved_to_a_version_without_its_gate_stops_as_incompatible(
    people: cast.People,
) -> None:
    run = _unknown_after_signing(people)
    runs.settle(
        run.id,
        "pay:1:0",
        happened=True,
        output={"letter": "Yours"},
        by=people.steward,
        reason="seen in the bank",
    )
    old = registry.by_fingerprint(run.fingerprint).graph
    deployed(_asking_before("2", "between", "pay"))
    stopped = runs.advance(run.id)
    error = stored_error(stopped)
    assert error is not None
    assert stopped.status == Status.INCOMPATIBLE
    assert error["because"] == (
        "the output of pay:1:0 that was settled sets `letter`, which the gate of node"
        " `ask` guards, and version 2 has"
        " no gate there that asks as much"
    )
    assert "gate of node `ask`" not in [
        change["what"] for change in error["changes"] if change["weight"] == "breaking"
    ]
    assert version_choice.ways_out(stopped, forks=True).resume == "", (
        "the same version would stop it again"
    )
    registry.replace(old)
    assert version_choice.ways_out(stopped, forks=True).resume == "Finish on version 1"
    runs.resume(run.id)
    asking_run = runs.advance(run.id)
    assert asking_run.status == Status.PAUSED
    assert asking_run.at_node == "pay"
    run_actions.sign(
        asking_run, run_actions.reviewer(people.reviewer), [None, "approve"]
    )
    done = runs.advance(run.id)
    assert done.status == Status.COMPLETED
    assert state(done)["letter"] == "Yours"


def test_an_output_is_settled_by_the_version_that_will_go_on_and_by_no_other(
    people: cast.People,
) -> None:
    deployed(_asking_before("2", "ask", "between", "pay"))
    run = _unknown_after_signing(people)
    worker = a_worker(fingerprints=[run.fingerprint])
    deployed(_asking_before("2", "ask", "between", "pay"))
    arguments: dict[str, Any] = {
        "happened": True,
        "by": people.steward,
        "reason": "seen",
        "output": {"notes": ["paid"]},
    }
    with pytest.raises(UnknownThing):
        runs.settle(run.id, "pay:1:0", **arguments)
    Worker.objects.filter(id=worker.id).update(stopped_at=worker.heartbeat_at)
    with pytest.raises(UnknownThing):
        runs.settle(run.id, "pay:1:0", **arguments)
    deployed(_asking_before("3", "ask", "between", "pay"))
    runs.settle(run.id, "pay:1:0", **arguments)
