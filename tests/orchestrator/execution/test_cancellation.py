"""Cancelling: at once where nobody has the run, after the superstep in hand where a
worker has it.
"""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Decision, RequestStatus
from approvals.webhooks import verbs as webhooks
from checkpoints import timeline
from checkpoints.core import work_sums
from checkpoints.core.status import Status
from checkpoints.core.work_sums import WorkSums
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.models import Job, Run, RunEvent, TaskResult
from checkpoints.queue import jobs, leases
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Retry, Task
from orchestrator.engine.errors import InvalidValue, WrongStatus
from orchestrator.execution import loop
from tests.graphs_app import graphs
from tests.races.meeting import Thread
from tests.support import cast, notices, run_actions, secret_claim
from tests.support.forging import rewrite, tamper
from tests.support.processes import calls
from tests.support.run_actions import event_payloads, log, sign, start, state
from tests.support.small_graphs import (
    advanced,
    graph,
    held,
    registered,
    slice_of,
    started,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _mended() -> Iterator[None]:
    yield
    graphs.BROKEN.clear()


def in_one_node(name: str, act: Any, **options: Any) -> Any:
    """A graph of a node that does `act(ctx)`, and one behind it that must not run after
    a cancel.
    """
    flow = graph(name)

    @flow.node("work", **options)
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        act(ctx)
        return {"notes": ["work"]}

    @flow.node("after")
    def after(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["after"]}

    flow.edge(START, "work")
    flow.edge("work", "after")
    flow.edge("after", END)
    return flow


def test_a_queued_run_is_cancelled_at_once_and_nothing_of_it_runs(
    tmp_path: Path, people: cast.People
) -> None:
    run = runs.start("effects", {"folder": str(tmp_path)})
    run = runs.cancel(run.id, by=people.starter, reason="twice the same order")
    assert run.status == Status.CANCELLED
    assert run.due_at is None
    assert run.ended_at is not None
    asked = {
        "was": "queued",
        "reason": "twice the same order",
        "cancel_at": run.cancel_at.isoformat(),
    }  # type: ignore[union-attr]
    assert event_payloads(run, "cancel_requested") == [asked]
    assert log(run)[-1] == "run_cancelled"
    assert runs.advance(run.id).status == Status.CANCELLED
    assert calls(tmp_path) == []


def test_what_a_cancelled_run_asks_is_withdrawn_and_a_decision_after_it_is_told_who_cancelled(
    tmp_path: Path, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run = start("gated", tmp_path)
    runs.cancel(run.id, by=people.starter)
    assert run_actions.request(run).status == RequestStatus.WITHDRAWN
    assert len(event_payloads(run, "request_withdrawn")) == 1
    with pytest.raises(
        WrongStatus, match=f"cancelled by {people.starter.username}"
    ) as refused:
        sign(run, rita, ["approve"] * 4)
    assert refused.value.facts["by"] == [people.starter.username]
    assert not Decision.objects.filter(run=run.id).exists()
    assert runs.advance(run.id).status == Status.CANCELLED
    assert calls(tmp_path) == []


def test_a_decision_before_the_cancel_stays_on_record_and_is_not_applied(
    tmp_path: Path, people: cast.People
) -> None:
    run = start("gated", tmp_path)
    sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    assert runs.cancel(run.id).status == Status.CANCELLED
    assert Decision.objects.filter(run=run.id).count() == 4
    assert runs.advance(run.id).status == Status.CANCELLED
    assert state(run)["letter"] == ""
    assert calls(tmp_path) == []


def test_cancelling_twice_changes_nothing(tmp_path: Path, people: cast.People) -> None:
    run = start("gated", tmp_path)
    first = runs.cancel(run.id, by=people.starter)
    again = runs.cancel(run.id, by=people.reviewer, reason="me too")
    assert again.status == Status.CANCELLED
    assert again.event_seq == first.event_seq
    assert again.ended_at == first.ended_at


def test_a_run_that_ended_otherwise_cannot_be_cancelled(tmp_path: Path) -> None:
    run = start("effects", tmp_path)
    with pytest.raises(WrongStatus, match="completed"):
        runs.cancel(run.id)
    Run.objects.filter(id=run.id).update(status=Status.TAMPERED)
    with pytest.raises(WrongStatus, match="tampered"):
        runs.cancel(run.id)
    assert "cancel_requested" not in log(run)


def test_an_endless_reason_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run = start("gated", tmp_path)
    with pytest.raises(InvalidValue):
        runs.cancel(run.id, reason="x" * 10_001)
    assert Run.objects.get(id=run.id).status == Status.PAUSED


def test_a_failed_run_is_cancelled(tmp_path: Path) -> None:
    graphs.BROKEN.add("fragile")
    run = runs.cancel(start("flaky", tmp_path).id)
    assert run.status == Status.CANCELLED
    assert run.error_code == ""
    with pytest.raises(WrongStatus):
        runs.resume(run.id)


def test_a_run_that_waits_for_its_next_attempt_is_cancelled_at_once(
    people: cast.People,
) -> None:
    def fail(ctx: Any) -> None:
        raise RuntimeError("not yet")

    run = advanced(
        in_one_node("cancel-waiting", fail, retry=Retry(attempts=3, backoff=60))
    )
    assert run.status == Status.WAITING
    run = runs.cancel(run.id)
    assert run.status == Status.CANCELLED
    assert run.due_at is None


def test_the_superstep_in_hand_commits_and_the_next_does_not_begin() -> None:
    flow = in_one_node(
        "cancel-in-hand", lambda ctx: runs.cancel(ctx.run_id, reason="stop")
    )
    run = slice_of(started(flow))
    assert run.status == Status.CANCELLED
    assert state(run)["notes"] == ["work"]
    assert run.lease_until is None
    assert run.leased_by is None
    assert run.ended_at is not None
    assert log(run)[-3:] == ["cancel_requested", "checkpoint_saved", "run_cancelled"]


def test_a_cancel_that_comes_with_the_last_superstep_is_too_late() -> None:
    flow = graph("cancel-too-late")

    @flow.node("only")
    def only(state: Any, ctx: Any) -> None:
        runs.cancel(ctx.run_id)

    flow.edge(START, "only")
    flow.edge("only", END)
    assert slice_of(started(flow)).status == Status.COMPLETED


def test_a_gate_that_opens_with_the_superstep_in_hand_is_withdrawn() -> None:
    flow = graph("cancel-gate")

    @flow.node("ask", effect="human", gate=desk_gate())
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        runs.cancel(ctx.run_id)
        return {"letter": "proposed"}

    flow.edge(START, "ask")
    flow.edge("ask", END, when=("approved", "partial", "rejected"))
    run = slice_of(started(flow))
    assert run.status == Status.CANCELLED
    assert run_actions.request(run).status == RequestStatus.WITHDRAWN


def desk_gate() -> Any:
    from orchestrator.engine import Gate

    return Gate(reviewers=["group:claims"])


def test_a_superstep_in_hand_that_fails_ends_as_cancelled() -> None:
    def fail(ctx: Any) -> None:
        runs.cancel(ctx.run_id)
        raise RuntimeError("broken")

    run = slice_of(started(in_one_node("cancel-failing", fail)))
    assert run.status == Status.CANCELLED
    assert "run_failed" in log(run)


def test_a_running_task_sees_that_it_is_cancelled_and_what_it_returns_is_kept(
    configure: Any,
) -> None:
    configure(LEASE_SECONDS=0.6)
    seen = []
    begun = threading.Event()

    def long(ctx: Any) -> None:
        begun.set()
        until = time.monotonic() + 20
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.02)
        seen.append(ctx.cancelled)

    run = started(in_one_node("cancel-long", long))
    working = Thread(lambda: slice_of(run))
    assert begun.wait(10)
    assert runs.cancel(run.id).status == Status.RUNNING
    working.outcome()
    assert seen == [True]
    assert Run.objects.get(id=run.id).status == Status.CANCELLED
    assert state(run)["notes"] == ["work"]


def test_no_further_attempt_is_made_of_a_task_that_fails_after_the_cancel(
    configure: Any,
) -> None:
    configure(LEASE_SECONDS=0.6)
    attempts = []

    def fail(ctx: Any) -> None:
        attempts.append(ctx.attempt)
        runs.cancel(ctx.run_id)
        until = time.monotonic() + 20
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.02)
        raise RuntimeError("broken")

    run = slice_of(
        started(
            in_one_node("cancel-retry", fail, retry=Retry(attempts=5, backoff=0.01))
        )
    )
    assert run.status == Status.CANCELLED
    assert attempts == [1]


def test_a_run_whose_worker_died_after_the_request_is_cancelled_by_the_next() -> None:
    run = started(in_one_node("cancel-dead", lambda ctx: None))
    held(run)
    assert runs.cancel(run.id).status == Status.RUNNING
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() - timedelta(hours=1)
    )
    run = runs.advance(run.id)
    assert run.status == Status.CANCELLED
    assert run.superstep == 0


def test_a_run_under_an_expired_lease_is_cancelled_and_its_frozen_worker_saves_nothing() -> (
    None
):
    flow = in_one_node(
        "cancel-frozen",
        lambda ctx: Run.objects.filter(id=ctx.run_id).update(**EXPIRED) and cancel(ctx),
    )
    run = slice_of(started(flow))
    assert run.status == Status.CANCELLED
    assert run.superstep == 0
    assert state(run)["notes"] == []
    assert log(run)[-1] == "run_cancelled"


EXPIRED = {"lease_until": "2000-01-01T00:00Z"}


def cancel(ctx: Any) -> None:
    assert runs.cancel(ctx.run_id).status == Status.CANCELLED


def with_an_open_intent(tmp_path: Path, node: str) -> Run:
    """A run whose worker is gone between the intent and the result of `node`."""
    run = runs.start("effects", {"folder": str(tmp_path)})
    for _ in range(2 if node == "send" else 1):
        claim = leases.claim_one(run.id)
        looks = iter([False])
        loop.run_slice(
            claim.id, claim.epoch, draining=lambda looks=looks: next(looks, True)
        )
    journal.write_intents(
        held(run), [journal.Intent(Task(node, 1), 1, "external", "0" * 64, 0.0)]
    )
    Run.objects.filter(id=run.id).update(**EXPIRED)
    return run


def test_a_run_with_an_unknown_effect_is_unknown_first_and_cancelled_when_it_is_settled(
    tmp_path: Path, people: cast.People
) -> None:
    run = runs.cancel(with_an_open_intent(tmp_path, "send").id, by=people.starter)
    assert run.status == Status.UNKNOWN
    assert run.error_code == "outcome_unknown"
    assert runs.cancel(run.id).status == Status.UNKNOWN
    runs.settle(
        run.id,
        "send:1:0",
        happened=True,
        output={"sent": "x"},
        by=people.starter,
        reason="seen",
    )
    run.refresh_from_db()
    assert run.status == Status.CANCELLED
    assert log(run)[-2:] == ["task_settled", "run_cancelled"]
    assert runs.advance(run.id).status == Status.CANCELLED
    assert calls(tmp_path, "sent") == []


def test_a_cancelled_run_that_becomes_unknown_is_counted_logged_and_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sums = WorkSums(1)
    monkeypatch.setattr(work_sums, "installed", sums)
    webhooks.add_webhook("https://example.org/", events=["run.unknown"], by=None)
    run = runs.cancel(with_an_open_intent(tmp_path, "send").id)
    assert run.status == Status.UNKNOWN
    runs.cancel(run.id)
    assert sums.totals()["runs_unknown"] == 1
    [line] = [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg["event"] == "run_unknown"
    ]
    assert line["run"] == str(run.id)
    assert (line["code"], line["node"]) == ("outcome_unknown", "send")
    assert notices.events() == [("run.unknown", "unknown")]


def test_an_unknown_run_that_is_cancelled_stays_unknown_until_it_is_settled(
    tmp_path: Path, people: cast.People
) -> None:
    run = runs.advance(with_an_open_intent(tmp_path, "send").id)
    assert run.status == Status.UNKNOWN
    assert runs.cancel(run.id, by=people.starter).status == Status.UNKNOWN
    for row in TaskResult.objects.filter(run=run):
        rewrite(row, thread_ended_at=timezone.now())
    runs.settle(
        run.id, "send:1:0", happened=False, by=people.starter, reason="not in the post"
    )
    run.refresh_from_db()
    assert run.status == Status.CANCELLED
    assert calls(tmp_path, "sent") == []


def test_an_idempotent_effect_that_may_have_happened_does_not_hold_a_cancel_up(
    tmp_path: Path,
) -> None:
    assert (
        runs.cancel(with_an_open_intent(tmp_path, "pay").id).status == Status.CANCELLED
    )


def test_an_open_effect_of_a_graph_that_is_not_registered_here_counts_as_unknown() -> (
    None
):
    run = started(
        in_one_node("gone", lambda ctx: None, effect="external", idempotent=True)
    )
    journal.write_intents(held(run), [Intent(Task("work", 1), 1, "external", "", 60.0)])
    Run.objects.filter(id=run.id).update(**EXPIRED)
    registered(in_one_node("gone", lambda ctx: None))
    assert runs.cancel(run.id).status == Status.UNKNOWN


def test_the_jobs_of_a_cancelled_run_are_cancelled_with_it(tmp_path: Path) -> None:
    run = start("gated", tmp_path)
    job_id = jobs.add_job("deadline", run=run.id, due_in=3600)
    runs.cancel(run.id)
    assert Job.objects.get(id=job_id).status == "cancelled"


def test_a_run_that_was_changed_behind_everybodys_back_is_tampered_and_not_cancelled(
    people: cast.People,
) -> None:
    run = started(in_one_node("cancel-tampered", lambda ctx: None))
    held(run)
    runs.cancel(run.id, by=people.starter)
    Run.objects.filter(id=run.id).update(decisions=7, **EXPIRED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert "run_cancelled" not in log(run)


@pytest.mark.parametrize("graph", ["loop_none", "loop_third", "loop_every"])
def test_the_last_row_of_a_cancelled_run_stays_in_the_timeline_and_the_run_verifies(
    graph: str, configure: Any
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = runs.start(graph, {})
    slice_of(run)
    run = runs.cancel(slice_of(run).id)
    assert run.status == Status.CANCELLED
    assert run.superstep == 2
    newest = timeline.list_checkpoints(run.id)[0]
    assert newest.id == run.head
    assert newest.superstep == 2
    assert newest.kept is True
    assert timeline.state_at(newest.id)["scratch"]["total"] == 2
    assert ("checkpoint_kept" in log(run)) == (graph != "loop_every")
    assert list(verify_run(run.id)) == []


def test_in_an_encrypted_graph_the_reason_is_encrypted_and_the_cancelled_run_verifies(
    configure: Any,
) -> None:
    configure(**secret_claim.keys(), SLICE_SECONDS=1e-9)
    flow = graph("cancel-secret", encrypted=True, checkpoints="none")
    for name in ("first", "second", "third"):
        flow.node(name)(lambda state, ctx: {"notes": ["done"]})
    for source, target in (
        (START, "first"),
        ("first", "second"),
        ("second", "third"),
        ("third", END),
    ):
        flow.edge(source, target)
    run = runs.cancel(slice_of(started(flow)).id, reason="a secret reason")
    assert run.status == Status.CANCELLED
    assert run.superstep == 1
    line = RunEvent.objects.get(run=run, type="cancel_requested")
    assert b"secret" not in bytes(line.payload)
    assert read_value(line, "payload")["reason"] == "a secret reason"
    assert list(verify_run(run.id)) == []


def test_a_cancelled_run_with_a_tampered_unknown_effect_is_tampered_and_not_reclaimed() -> (
    None
):
    run = started(
        in_one_node("forged-in-hand", lambda state, ctx: None, effect="external")
    )
    journal.write_intents(held(run), [Intent(Task("work", 1), 1, "external", "", 60.0)])
    runs.cancel(run.id)
    tamper(TaskResult.objects.get(run=run), over_at=timezone.now())
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    assert slice_of(run).status == Status.TAMPERED
    assert leases.claim_one(run.id) is None
