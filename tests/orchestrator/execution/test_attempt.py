"""What a task sees, says and costs."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import User

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Retry, Send, Task, Write
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.run_access.labels import progress_of
from tests.support import cast, run_actions
from tests.support.run_actions import event_payloads, pending, sign, state
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)
GATE = Gate(reviewers=["group:claims"])


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def test_what_a_node_does_to_its_payload_is_seen_by_nobody_else() -> None:
    flow = graph("payload-taken-apart")
    seen = []

    @flow.node(sends=["pay"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("pay", {"amounts": [1, 2]})]

    @flow.node(
        effect="external", idempotent=True, retry=Retry(attempts=2, backoff=0.01)
    )
    def pay(state: Any, ctx: Any) -> None:
        seen.append(list(ctx.payload["amounts"]))
        ctx.payload["amounts"].clear()
        raise RuntimeError("try again")

    flow.edge(START, "split")
    flow.edge("split", END)
    flow.edge("pay", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    runs.resume(run.id)
    runs.advance(run.id)
    assert seen == [[1, 2]] * 4


def test_a_gated_node_that_proposes_nothing_fails_alone_and_what_its_siblings_did_is_kept() -> (
    None
):
    flow = graph("nothing-proposed")
    calls = []

    @flow.node(effect="human", gate=GATE)
    def propose(state: Any, ctx: Any) -> None:
        pass

    @flow.node(effect="read")
    def look(state: Any, ctx: Any) -> None:
        calls.append(1)

    for name in ("propose", "look"):
        flow.edge(START, name)
        flow.edge(name, END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert unpack_json(run.error)["node"] == "propose"
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.FAILED
    assert calls == [1]


def test_a_check_that_breaks_with_unwritable_text_asks_people_all_the_same(
    rita: User,
) -> None:
    flow = graph("check-breaks")

    def check(state: Any, proposal: Any) -> bool:
        raise RuntimeError("half a pair \ud800 and \x00")

    @flow.node(
        effect="human", gate=Gate(reviewers=["group:claims"], needs_approval=check)
    )
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    assert run.status == Status.PAUSED
    sign(run, rita, ["approve"])
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_router_that_breaks_with_unwritable_text_fails_the_run_by_name() -> None:
    flow = graph("router-breaks")

    @flow.node()
    def work(state: Any, ctx: Any) -> None:
        pass

    def route(state: Any) -> str:
        raise RuntimeError("half a pair \ud800 and \x00")

    flow.edge(START, "work")
    flow.branch("work", route, {"end": END, "again": "work"})
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert "half a pair ?" in unpack_json(run.error)["message"]


@pytest.mark.parametrize("label", ["x" * 301, "half a pair \ud800", "nul \x00"])
def test_a_label_that_no_row_can_hold_does_not_stop_the_gate(
    label: str, rita: User
) -> None:
    flow = graph("odd-label")

    @flow.node(effect="human", gate=GATE)
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "proposed", label=label)]

    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    assert run.status in (Status.PAUSED, Status.FAILED), "asked, or refused by name"
    if run.status == Status.PAUSED:
        sign(run, rita, ["approve"])
        assert runs.advance(run.id).status == Status.COMPLETED


def test_an_effect_that_happened_and_returned_an_unwritable_label_is_unknown_not_failed() -> (
    None
):
    flow = graph("odd-label-outside")

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "sent", label="half a pair \ud800")]

    flow.edge(START, "send")
    flow.edge("send", END)
    assert advanced(flow).status in (Status.UNKNOWN, Status.COMPLETED)


def test_an_error_that_cannot_even_be_shown_fails_its_task_at_once() -> None:
    flow = graph("unshowable-error")

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    @flow.node(timeout=20)
    def work(state: Any, ctx: Any) -> None:
        raise Mute

    flow.edge(START, "work")
    flow.edge("work", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert unpack_json(run.error)["type"] == "Mute"


def test_a_secret_is_masked_in_progress_and_in_what_comes_too_late(
    configure: Any,
) -> None:
    configure(SECRETS={"TOKEN": "s3cret-token"}, LEASE_SECONDS=15)
    flow = graph("secret-in-progress")
    seen = threading.Event()

    @flow.node()
    def work(state: Any, ctx: Any) -> None:
        ctx.report(1, 2, f"with {ctx.secrets['TOKEN']} \x00 \ud800")
        for _ in range(60):
            noted.update(progress_of(Run.objects.get(id=ctx.run_id)) or {})
            if noted:
                break
            seen.wait(0.05)

    noted: dict[str, Any] = {}
    flow.edge(START, "work")
    flow.edge("work", END)
    assert advanced(flow).status == Status.COMPLETED
    assert noted
    assert "s3cret" not in noted["note"]


@pytest.mark.parametrize("attempts", [3])
def test_each_attempt_is_an_event(attempts: int) -> None:
    flow = graph("attempts-are-events")

    @flow.node(retry=Retry(attempts=attempts, backoff=0.01))
    def work(state: Any, ctx: Any) -> None:
        if ctx.attempt < attempts:
            raise RuntimeError("again")

    flow.edge(START, "work")
    flow.edge("work", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert [line["attempt"] for line in event_payloads(run, "retry_planned")] == [1, 2]


def test_a_thousand_tasks_of_one_fan_out_do_not_ask_for_a_thousand_threads_at_once() -> (
    None
):
    flow = graph("thousand")
    most = [0]
    lock = threading.Lock()
    now = [0]

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(1000)]

    @flow.node()
    def leaf(state: Any, ctx: Any) -> dict[str, Any]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.05)
        with lock:
            now[0] -= 1
        return {"notes": [str(ctx.payload)]}

    flow.edge(START, "split")
    flow.edge("split", END)
    flow.edge("leaf", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == [str(n) for n in range(1000)]
    assert most[0] <= 40


def test_a_fan_out_of_atomic_tasks_is_done_task_by_task(people: cast.People) -> None:
    flow = graph("many-atomic")

    @flow.node(sends=["book"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("book", n) for n in range(150)]

    @flow.node(effect="write", atomic=True)
    def book(state: Any, ctx: Any) -> dict[str, Any]:
        User.objects.create(username=f"booked-{ctx.payload}")
        return {"notes": [str(ctx.payload)]}

    flow.edge(START, "split")
    flow.edge("split", END)
    flow.edge("book", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    assert unpack_json(run.error) is None
    assert User.objects.filter(username__startswith="booked-").count() == 150
    assert not pending(run)


def test_what_siblings_returned_is_kept_where_a_gate_cannot_be_opened_and_the_resume_asks() -> (
    None
):
    ran: list[str] = []
    absent = [True]

    def reviewers(state: Any) -> list[str]:
        if absent[0]:
            raise LookupError("nobody is on duty")
        return ["group:claims"]

    flow = graph("no_reviewers")
    flow.node("ask", effect="human", gate=Gate(reviewers=reviewers))(
        lambda state, ctx: {"letter": "Dear"}
    )
    flow.node("beside")(
        lambda state, ctx: ran.append("beside") or {"notes": ["beside"]}
    )
    for name in ("ask", "beside"):
        flow.edge(START, name)
    flow.edge("ask", END, when=("approved", "partial"))
    flow.edge("beside", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    absent[0] = False
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert ran == ["beside"]


@pytest.mark.parametrize("jitter", [0.0, 0.25, 1.0])
def test_pauses_between_attempts_are_spread_by_the_share_that_was_asked_for(
    jitter: float,
) -> None:
    retry = Retry(backoff=2.0, factor=3.0, jitter=jitter)
    task = Task("node", 1)
    middle = 6.0
    context = SuperstepContext.__new__(SuperstepContext)
    pauses = [context.pause(retry, 2, task) for _ in range(1000)]
    least = middle * (1 - jitter)
    most = middle * (1 + jitter)
    assert least <= min(pauses) <= least + jitter
    assert most - jitter <= max(pauses) <= most
    assert len(set(pauses)) == (1 if jitter == 0 else 1000)
