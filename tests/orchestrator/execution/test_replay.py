"""Replays: nothing outside is done, recorded outcomes are taken by input hash, and a
report says where it diverged.
"""

from typing import Any

import pytest
from django.core import mail

from approvals.gates import waivers
from approvals.models import ApprovalRequest, Decision
from checkpoints import event_log
from checkpoints.core.status import Status
from checkpoints.journal import results
from checkpoints.models import Checkpoint, MemoryLanding, MemoryTrace, Run, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import (
    END,
    START,
    Command,
    Gate,
    Graph,
    Retry,
    Send,
    Show,
    Task,
    Write,
)
from orchestrator.engine.errors import InvalidValue, WrongStatus
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim, paid
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: dict[str, Any] = {}


def replayed(run: Run, at: str = "initial", **how: Any) -> Run:
    replay = runs.advance(runs.replay(f"{run.key}:{at}", **how).id)
    assert list(verify_run(replay.id)) == []
    return replay


def test_a_replay_does_what_its_origin_did_and_nothing_outside(
    people: cast.People,
) -> None:
    run = paid("replayed", people)
    replay = replayed(run, by=people.starter)
    assert replay.status == Status.COMPLETED
    assert run_actions.state(replay) == run_actions.state(run)
    assert len(PAID) == 1
    assert ApprovalRequest.objects.filter(run=replay).count() == 0
    assert len(mail.outbox) == 0
    assert not TaskResult.objects.filter(run=replay).exists()
    assert not Decision.objects.filter(run=replay.id).exists()
    named = ("superstep", "source")
    rows = [
        list(
            Checkpoint.objects.filter(run=each_run).order_by("seq").values_list(*named)
        )
        for each_run in (run, replay)
    ]
    assert rows[1] == [(0, "replay"), *rows[0][1:]], (
        "the same supersteps and settlements"
    )
    report = runs.replay_report(replay.id)
    assert report["reused"] == ["ask:1:0", "pay:1:0"]
    assert report["diverged"] == []
    assert report["status"] == "completed"


@pytest.mark.parametrize("at", ["at-1", "at-2", "at-3"])
def test_a_replay_from_any_checkpoint_comes_to_the_same_end(
    people: cast.People, at: str
) -> None:
    run = paid("anywhere", people)
    replay = replayed(run, at)
    assert replay.status == Status.COMPLETED
    assert run_actions.state(replay) == run_actions.state(run)
    assert len(PAID) == 1


def test_an_edited_answer_is_taken_as_it_was_signed(people: cast.People) -> None:
    PAID.clear()
    run = advanced(claim("edited"))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), [("edit", 7)])
    run = runs.advance(run.id)
    replay = replayed(run)
    assert run_actions.state(replay)["total"] == 7
    assert run_actions.state(replay)["notes"] == ["first", "paid 7"]


def _reads(name: str) -> Graph:
    """look (read) -> pay (external), beside it other (pure)"""
    flow = graph(name)
    flow.node("look", effect="read")(lambda state, ctx: {"total": SEEN["total"]})
    flow.node("pay", effect="external", idempotent=True)(
        lambda state, ctx: {"notes": [f"paid {state.total}"]}
    )
    flow.node("other")(lambda state, ctx: {"notes": ["other"]})
    flow.edge(START, "look")
    flow.edge(START, "other")
    flow.edge("look", "pay")
    flow.edge("pay", END)
    flow.edge("other", END)
    return flow


def test_another_input_ends_the_branch_as_diverged_with_the_first_path_and_the_others_go_on() -> (
    None
):
    SEEN["total"] = 1
    run = advanced(_reads("diverges"))
    SEEN["total"] = 2
    replay = replayed(run)
    assert replay.status == Status.COMPLETED
    assert run_actions.state(replay)["notes"] == ["other"]
    (divergence,) = runs.replay_report(replay.id)["diverged"]
    assert divergence == {
        "task": "pay:1:0",
        "why": "other_input",
        "path": "scratch.total",
    }


def _retried(name: str, fails: int, **edges: Any) -> Graph:
    """pay (external, tried up to twice) -> last, the first `fails` times it fails."""
    flow = graph(name)
    tries: list[int] = []

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        tries.append(ctx.attempt)
        if len(tries) <= fails:
            raise ConnectionError(f"try {len(tries)}")
        return {"notes": [f"paid at try {len(tries)}"]}

    flow.node("pay", effect="external", idempotent=True, retry=Retry(2, backoff=0))(pay)
    flow.node("last")(
        lambda state, ctx: {
            "notes": [f"{ctx.error.message}" if ctx.error else "no error"]
        }
    )
    flow.edge(START, "pay")
    flow.edge("pay", "last", **edges)
    flow.edge("pay", END)
    flow.edge("last", END)
    return flow


def test_a_replay_of_a_task_tried_twice_takes_the_outcome_of_the_last_try() -> None:
    run = advanced(_retried("tried_twice", 1))
    assert run.status == Status.COMPLETED
    assert TaskResult.objects.filter(run=run).count() == 2
    replay = replayed(run)
    assert (
        run_actions.state(replay)["notes"]
        == run_actions.state(run)["notes"]
        == ["paid at try 2", "no error"]
    )
    report = runs.replay_report(replay.id)
    assert report["reused"] == ["pay:1:0"]
    assert report["diverged"] == []
    assert _timeline(replay) == _timeline(run) == [("pay", 1, 1), ("last", 1, 1)]


def _timeline(run: Run) -> list[tuple[str, int, int]]:
    """Node, visit and tasks of each checkpoint behind the first: a try that failed is
    no task of its own.
    """
    rows = Checkpoint.objects.filter(run=run, superstep__gte=1).order_by("seq")
    return [
        (entry["node"], entry["visit"], entry["tasks"])
        for row in rows
        for entry in row.nodes
    ]


def test_a_replay_of_a_task_that_failed_twice_follows_the_last_error() -> None:
    run = advanced(_retried("failed_twice", 2, when="error"))
    assert run.status == Status.COMPLETED
    assert TaskResult.objects.filter(run=run).count() == 2
    replay = replayed(run)
    assert (
        run_actions.state(replay)["notes"]
        == run_actions.state(run)["notes"]
        == ["try 2"]
    )
    assert runs.replay_report(replay.id)["diverged"] == []


def test_a_task_that_did_not_happen_at_first_and_then_did_is_replayed_as_it_did(
    people: cast.People,
) -> None:
    flow = graph("settled_twice")
    tries = [1]

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        if tries and tries.pop():
            raise ConnectionError
        return {"notes": ["paid"]}

    flow.node("pay", effect="external")(pay)
    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    row = TaskResult.objects.get(run=run)
    results.note_thread_ended(run.id, 1, Task("pay", 1, 0), row.attempt)
    runs.settle(
        run.id, "pay:1:0", happened=False, by=people.starter, reason="the bank says no"
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert TaskResult.objects.filter(run=run).count() == 2
    assert run_actions.state(replayed(run))["notes"] == ["paid"]


def test_what_was_never_answered_diverges_for_want_of_a_record(
    people: cast.People,
) -> None:
    run = advanced(claim("unanswered"))
    replay = replayed(run)
    assert replay.status == Status.COMPLETED
    assert runs.replay_report(replay.id)["reused"] == ["ask:1:0"]
    assert run_actions.log(replay)[-1] == "run_completed"
    assert runs.replay_report(replay.id)["diverged"] == [
        {"task": "ask:1:0", "why": "no_record"}
    ]
    failed = graph("never")
    failed.node("pay", effect="external")(lambda state, ctx: 1 / 0)  # type: ignore[arg-type, return-value]
    failed.edge(START, "pay")
    failed.edge("pay", END)
    replay = replayed(advanced(failed))
    assert runs.replay_report(replay.id)["diverged"] == [
        {"task": "pay:1:0", "why": "no_record"}
    ]


def test_memory_is_seen_as_it_was_and_what_a_replay_remembers_is_its_own(
    people: cast.People,
) -> None:
    flow = graph("remembers", memory="snapshot")

    def keep(state: Any, ctx: Any) -> dict[str, Any]:
        trace = ctx.memory.get("k", "replays")
        ctx.memory.put("k", (trace.content if trace else 0) + 1, "replays")
        return {"notes": [str(trace.content if trace else None)]}

    flow.node("keep")(keep)
    flow.node("again")(keep)
    flow.edge(START, "keep")
    flow.edge("keep", "again")
    flow.edge("again", END)
    run = advanced(flow)
    assert run_actions.state(run)["notes"] == ["None", "1"]
    trace = MemoryTrace.objects.get(namespace="replays")
    again = replayed(run)
    assert run_actions.state(again)["notes"] == ["None", "1"]
    assert MemoryTrace.objects.get(namespace="replays").version == trace.version == 2
    assert not MemoryLanding.objects.filter(run=again).exists()


def test_a_replay_in_live_mode_reads_its_own_memory_first(people: cast.People) -> None:
    flow = graph("live", memory="live")

    def keep(state: Any, ctx: Any) -> dict[str, Any]:
        hits = ctx.memory.search("word", "live replays", 5)
        ctx.memory.put(f"k{ctx.visit}{ctx.node}", f"word of {ctx.node}", "live replays")
        return {"notes": [str(len(hits))]}

    for name in ("first", "second"):
        flow.node(name)(keep)
    flow.edge(START, "first")
    flow.edge("first", "second")
    flow.edge("second", END)
    run = advanced(flow)
    MemoryTrace.objects.all().delete()
    assert run_actions.state(replayed(run))["notes"] == ["0", "1"]
    assert not MemoryTrace.objects.exists()


def test_a_gate_that_needed_nobody_needs_nobody_again(people: cast.People) -> None:
    flow = graph("passed")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: False
    )
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", f"l{len(PAID)}")]
    )
    flow.edge(START, "ask")
    flow.edge("ask", END)
    PAID.clear()
    run = advanced(flow)
    PAID.append("the node would propose something else now")
    assert run_actions.state(replayed(run))["letter"] == "l0"


def test_a_gate_that_needed_nobody_is_replayed_where_no_row_was_kept_before_it(
    people: cast.People,
) -> None:
    flow = graph("passed_unkept", checkpoints="none")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: False
    )
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", f"l{len(PAID)}")]
    )
    for source, target in ((START, "first"), ("first", "ask"), ("ask", END)):
        flow.edge(source, target)
    PAID.clear()
    run = advanced(flow)
    assert not Checkpoint.objects.filter(run=run.id, kept=True, superstep=1).exists()
    PAID.append("the node would propose something else now")
    again = replayed(run)
    assert run_actions.state(again)["letter"] == "l0"
    assert runs.replay_report(again.id)["diverged"] == []


def test_a_gate_that_needed_nobody_is_replayed_with_its_goto_and_its_sends(
    people: cast.People,
) -> None:
    """plan sends to ask twice; ask goes to end, and sends to leaf."""
    flow = graph("passed_ways")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: False
    )
    PAID.clear()

    def ask(state: Any, ctx: Any) -> Command:
        sent = [
            Send("leaf", {"n": n, "of": ctx.payload, "at": len(PAID)})
            for n in (1, 2, 1)
        ]
        return Command(
            update={"notes": [f"l{len(PAID)}"]},
            goto="end" if ctx.payload == 1 else None,
            send=sent,
        )

    flow.node("plan", sends="ask")(lambda state, ctx: [Send("ask", 1), Send("ask", 2)])
    flow.node("ask", effect="human", gate=gate, goto="end", sends="leaf")(ask)
    flow.node("leaf")(
        lambda state, ctx: {"notes": ["{n} {of} {at}".format(**ctx.payload)]}
    )
    flow.node("end")(lambda state, ctx: {"notes": ["end"]})
    for source, target in ((START, "plan"), ("leaf", END), ("end", END)):
        flow.edge(source, target)
    run = advanced(flow)
    state = run_actions.state(run)
    assert run.status == Status.COMPLETED
    assert state["notes"].count("end") == 1
    assert len(state["notes"]) == 9
    PAID.append("the node would send something else now")
    again = replayed(run)
    assert run_actions.state(again) == state
    assert runs.replay_report(again.id)["diverged"] == []


def test_a_gate_that_needed_nobody_before_its_line_told_what_the_task_saw_is_no_record(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = graph("passed_before")
    gate = Gate(
        reviewers=["group:claims"], needs_approval=lambda state, proposal: False
    )
    flow.node("ask", effect="human", gate=gate)(
        lambda state, ctx: [Write("letter", "l")]
    )
    flow.edge(START, "ask")
    flow.edge("ask", END)
    plain = event_log.NewEvent

    def older(type: str, payload: Any = None, **options: Any) -> Any:
        return plain(type, {"decisions": payload["decisions"]}, **options)

    with monkeypatch.context() as before:
        before.setattr(waivers, "NewEvent", older)
        run = advanced(flow)
    again = replayed(run)
    assert again.status == Status.COMPLETED
    assert runs.replay_report(again.id)["diverged"] == [
        {"task": "ask:1:0", "why": "no_record"}
    ]


def test_a_replay_is_not_made_live(people: cast.People) -> None:
    run = paid("not_live", people)
    replay = replayed(run, "at-1")
    with pytest.raises(WrongStatus, match="fork it instead"):
        runs.rewind(replay.id, f"{replay.key}:initial", by=people.starter)
    with pytest.raises(WrongStatus):
        runs.resume(replay.id, patch={"scratch": {"letter": "x"}}, by=people.starter)
    with pytest.raises(InvalidValue, match="is no replay"):
        runs.replay_report(run.id)
    forked = runs.advance(runs.fork(f"{replay.key}:initial", by=people.starter).id)
    assert forked.status == Status.PAUSED
    run_actions.sign(forked, people.reviewer, ["approve"])
    forked = runs.advance(forked.id)
    assert forked.status == Status.PAUSED
    assert forked.at_node == "pay"
    assert len(PAID) == 1


def test_an_output_that_people_rejected_is_not_replayed(people: cast.People) -> None:
    flow = graph("settled_then_rejected")
    flow.node("pay", effect="external")(lambda state, ctx: 1 / 0)  # type: ignore[arg-type, return-value]
    gate = Gate(reviewers=["group:claims"], writes={"letter": Show()})
    flow.node("ask", effect="human", gate=gate)(lambda state, ctx: [Write("total", 1)])
    flow.node("after")(lambda state, ctx: {"notes": ["after"]})
    flow.edge(START, "pay")
    flow.edge("pay", "after")
    flow.edge("after", END)
    flow.edge(START, "ask")
    flow.edge("ask", END)
    run = advanced(flow)
    rita = run_actions.reviewer(people.reviewer)
    row = TaskResult.objects.get(run=run)
    results.note_thread_ended(run.id, 1, Task("pay", 1, 0), row.attempt)
    runs.settle(
        run.id,
        "pay:1:0",
        happened=True,
        output={"letter": "mine"},
        by=people.starter,
        reason="seen",
    )
    run = runs.advance(run.id)
    run_actions.sign(
        run,
        rita,
        ["reject" if w.node == "pay" else "approve" for w in run_actions.pending(run)],
    )
    run = runs.advance(run.id)
    again = replayed(run)
    assert run_actions.state(run)["letter"] == ""
    assert run_actions.state(again)["letter"] == ""
    assert run_actions.state(again) == run_actions.state(run)


def test_a_patch_that_nobody_signed_ends_a_replay(people: cast.People) -> None:
    run = paid("unsigned_patch", people)
    fork = runs.fork(
        f"{run.key}:at-3",
        patch={"scratch": {"total": 9999}},
        allow_effects=["pay"],
        by=people.starter,
    )
    fork = runs.advance(fork.id)
    replay = replayed(fork)
    assert replay.status == Status.COMPLETED
    assert run_actions.state(replay)["total"] == 10
    assert len(PAID) == 1
    assert run_actions.state(replay)["notes"] == run_actions.state(fork)["notes"]
    assert runs.replay_report(replay.id)["diverged"] == [
        {"task": "$patch:1:0", "why": "no_record"}
    ]


def test_the_plan_of_a_replay_asks_nobody_and_repeats_nothing(
    people: cast.People,
) -> None:
    run = paid("planned_replay", people)
    plan = runs.plan(f"{run.key}:at-2", how="replay")
    assert plan.effects_again == ()
    assert plan.needs_yes == []
    assert plan.asks == ()
    assert plan.stops == ()
