"""Effects whose outcome nobody knows, results for another input, and keys that are
taken.
"""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.models import Run, TaskResult, Worker
from checkpoints.queue.processes import pid_space
from orchestrator import runs
from orchestrator.engine import END, START, Graph, NotDone, Retry, Task
from orchestrator.engine.errors import KeyConflict, WrongStatus
from orchestrator.execution import executor
from tests.support import cast
from tests.support.forging import rewrite
from tests.support.run_actions import state
from tests.support.small_graphs import advanced, graph, held, registered, started

pytestmark = pytest.mark.django_db(transaction=True)
SEND = Task("send", 1)
AGO = "2000-01-01T00:00Z"


@pytest.fixture
def calls() -> list[int]:
    """Return what the effects of a test did."""
    return []


def _sending(calls: list[int], **node: Any) -> Graph:
    flow = graph("sending")

    @flow.node(effect="external", **node)
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        calls.append(ctx.attempt)
        return {"letter": "sent"}

    flow.edge(START, "send")
    flow.edge("send", END)
    return flow


def _cut_off(run: Run) -> None:
    """A worker wrote the intent and died."""
    lease = held(run)
    journal.write_intents(lease, [Intent(SEND, 1, "external", "0" * 64, 60.0)])
    Run.objects.filter(id=run.id).update(lease_until=AGO)


def _unknown(calls: list[int]) -> Run:
    run = started(_sending(calls))
    _cut_off(run)
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert calls == []
    return run


def _did_not(run: Run, people: cast.People, **how: Any) -> Run:
    return runs.settle(
        run.id, "send:1:0", happened=False, by=people.steward, reason="looked", **how
    )


def test_no_extra_yes_lets_an_effect_run_again_while_its_attempt_may_still_act(
    calls: list[int], people: cast.People
) -> None:
    run = _unknown(calls)
    with pytest.raises(WrongStatus) as refused:
        _did_not(run, people, accept_risk=True)
    assert "until" in refused.value.facts
    assert runs.advance(run.id).status == Status.UNKNOWN
    assert calls == []


@pytest.mark.parametrize(
    "how",
    [
        "its cluster said so",
        "its process is not there any more",
        "its thread has ended",
    ],
)
def test_an_effect_may_run_again_at_once_when_its_worker_is_proven_gone(
    how: str, calls: list[int], people: cast.People
) -> None:
    run = _unknown(calls)
    now = timezone.now()
    row = TaskResult.objects.get(run=run)
    if how == "its cluster said so":
        worker = Worker.objects.create(
            host="elsewhere", pid=1, started_at=now, heartbeat_at=now, stopped_at=now
        )
        rewrite(row, worker=worker.id, host="elsewhere")
    elif how == "its process is not there any more":
        rewrite(row, process_started=1)
    else:
        rewrite(row, thread_ended_at=now)
    assert _did_not(run, people).status == Status.QUEUED
    assert runs.advance(run.id).status == Status.COMPLETED
    assert calls == [2]


def test_a_worker_that_is_alive_elsewhere_proves_nothing(
    calls: list[int], people: cast.People
) -> None:
    run = _unknown(calls)
    now = timezone.now()
    worker = Worker.objects.create(
        host="elsewhere", pid=1, started_at=now, heartbeat_at=now
    )
    rewrite(
        TaskResult.objects.get(run=run),
        worker=worker.id,
        host="elsewhere",
        process_started=1,
    )
    with pytest.raises(WrongStatus):
        _did_not(run, people)


NOWHERE_NEAR = {
    "a row from before": {"pid_space": ""},
    "another container with this host name": {
        "pid_space": f"{pid_space().split(':')[0]}:1"
    },
    "another boot of this host": {"pid_space": f"0:{pid_space().split(':')[1]}"},
}


@pytest.mark.parametrize("place", NOWHERE_NEAR.values(), ids=NOWHERE_NEAR)
def test_a_pid_of_another_space_proves_nothing_and_after_its_time_needs_an_extra_yes(
    place: dict[str, str], calls: list[int], people: cast.People
) -> None:
    run = _unknown(calls)
    rewrite(TaskResult.objects.get(run=run), process_started=1, **place)
    with pytest.raises(WrongStatus) as refused:
        _did_not(run, people, accept_risk=True)
    assert "until" in refused.value.facts
    rewrite(
        TaskResult.objects.get(run=run), over_at=timezone.now() - timedelta(seconds=1)
    )
    with pytest.raises(WrongStatus) as refused:
        _did_not(run, people)
    assert refused.value.facts["needs"] == "accept_risk"
    assert _did_not(run, people, accept_risk=True).status == Status.QUEUED


def test_an_unknown_effect_is_not_made_again_though_its_run_is_queued_without_a_settling(
    calls: list[int],
) -> None:
    run = _unknown(calls)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    assert runs.advance(run.id).status == Status.UNKNOWN
    assert calls == []


@pytest.mark.parametrize(
    ("node", "made", "status"),
    [
        ({}, [], Status.UNKNOWN),
        ({"not_done": (ConnectionError,)}, [], Status.UNKNOWN),
        ({"idempotent": True}, [2], Status.COMPLETED),
    ],
)
def test_only_an_idempotent_effect_is_made_again_after_its_worker_died(
    node: dict[str, Any], made: list[int], status: str, calls: list[int]
) -> None:
    run = started(_sending(calls, **node))
    _cut_off(run)
    assert runs.advance(run.id).status == status
    assert calls == made


def test_a_recorded_result_of_another_input_is_not_used(calls: list[int]) -> None:
    run = started(_sending(calls))
    lease = held(run)
    journal.write_intents(lease, [Intent(SEND, 1, "external", "0" * 64, 60.0)])
    output: dict[str, Any] = {"writes": [], "goto": None, "sends": []}
    assert journal.write_results(lease, [Ending(SEND, 1, "done", output)]) == []
    Run.objects.filter(id=run.id).update(lease_until=AGO)
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert calls == []
    assert TaskResult.objects.get(run=run).outcome == "unknown"


@pytest.mark.parametrize(
    ("error", "status"), [(NotDone, Status.FAILED), (RuntimeError, Status.UNKNOWN)]
)
def test_an_effect_that_raised_is_unknown_unless_it_says_that_nothing_happened(
    error: type[Exception], status: str
) -> None:
    flow = graph("raising")

    @flow.node(effect="write")
    def send(state: Any, ctx: Any) -> None:
        raise error("broken")

    flow.edge(START, "send")
    flow.edge("send", END)
    assert advanced(flow).status == status


def test_an_unknown_task_keeps_what_its_siblings_did_and_every_one_is_settled_on_its_own(
    calls: list[int], people: cast.People
) -> None:
    flow = graph("two-unknown")

    def sending(name: str, *, breaks: bool) -> None:
        @flow.node(name, effect="external")
        def send(state: Any, ctx: Any) -> dict[str, Any]:
            calls.append(1)
            if breaks:
                raise RuntimeError("the line broke")
            return {"notes": [name]}

        flow.edge(START, name)
        flow.edge(name, END)

    for name, breaks in (("one", True), ("two", False), ("three", True)):
        sending(name, breaks=breaks)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    for name in ("three", "one"):
        assert runs.advance(run.id).status == Status.UNKNOWN
        runs.settle(
            run.id,
            f"{name}:1:0",
            happened=True,
            output={"notes": [name]},
            by=people.steward,
            reason="seen",
        )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(calls) == 3
    assert state(run)["notes"] == ["one", "two", "three"], "reduced in declared order"


@pytest.mark.parametrize("longest", [5.0, 0.1])
def test_a_task_is_tried_as_often_as_its_node_says_whether_its_worker_waits_or_leaves(
    longest: float, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LONGEST_PAUSE", longest)
    flow = graph("tried-thrice")

    @flow.node(retry=Retry(attempts=3, backoff=0.3, factor=1, jitter=0))
    def work(state: Any, ctx: Any) -> None:
        calls.append(ctx.attempt)
        raise RuntimeError("broken")

    flow.edge(START, "work")
    flow.edge("work", END)
    run = advanced(flow)
    assert run.status == (Status.FAILED if longest > 1 else Status.WAITING)
    for _ in range(3):
        time.sleep(0.35)
        run = runs.advance(run.id)
    assert run.status == Status.FAILED
    assert calls == [1, 2, 3]


def test_a_key_is_one_journey_and_another_graph_or_input_is_a_conflict(
    calls: list[int],
) -> None:
    first = registered(_sending(calls))
    other = registered(_one_step())
    run = runs.start(first.name, {"folder": "a"}, key="order 1")
    assert runs.start(first.name, {"folder": "a"}, key="order 1").id == run.id
    for name, folder in ((first.name, "b"), (other.name, "a")):
        with pytest.raises(KeyConflict):
            runs.start(name, {"folder": folder}, key="order 1")
    assert Run.objects.count() == 1


def _one_step() -> Graph:
    """A graph without effects."""
    flow = graph("one-step")

    @flow.node()
    def work(state: Any, ctx: Any) -> None:
        pass

    flow.edge(START, "work")
    flow.edge("work", END)
    return flow
