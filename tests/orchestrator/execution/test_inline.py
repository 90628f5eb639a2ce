"""Tasks that the slice does itself: which, in what surroundings, and what becomes of
those that never return.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Graph, Retry, Send, registry
from orchestrator.execution import inline
from tests.support import run_actions
from tests.support.processes import until, worker
from tests.support.small_graphs import advanced, graph, registered, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 6


def loop(name: str, work: Callable[[int], Any], **node: Any) -> Graph:
    """A node that runs ROUNDS times and does `work` with its visit."""

    def step(state: Any, ctx: Any) -> dict[str, Any]:
        work(ctx.task.visit)
        return {"total": state.total + 1}

    flow = graph(name)
    flow.node("step", **node)(step)
    flow.edge(START, "step")
    flow.branch(
        "step",
        lambda state: "on" if state.total < ROUNDS else "over",
        {"on": "step", "over": END},
    )
    return flow


def here() -> bool:
    return threading.current_thread() is threading.main_thread()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limit of what counts as quick: on a busy machine nothing is."""
    monkeypatch.setattr(inline, "QUICK_MS", 1000)


@pytest.mark.usefixtures("patient")
def test_a_node_that_was_quick_three_times_is_done_by_the_slice_itself() -> None:
    seen: list[bool] = []
    run = advanced(loop("proven", lambda visit: seen.append(here())))
    assert run.status == Status.COMPLETED
    assert seen == [False, False, False, True, True, True]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("effect", ["read", "write", "external"])
def test_what_looks_or_acts_outside_never_is(effect: str) -> None:
    seen: list[bool] = []
    advanced(loop(f"proven-{effect}", lambda visit: seen.append(here()), effect=effect))
    assert seen == [False] * ROUNDS


@pytest.mark.usefixtures("patient")
def test_nor_is_a_node_that_acts_and_shares_its_function_with_one_that_is_pure() -> (
    None
):
    seen: list[bool] = []

    def step(state: Any, ctx: Any) -> dict[str, Any]:
        seen.append(here())
        return {"total": state.total + 1}

    flow = graph("shares")
    flow.node("pure")(step)
    flow.node("acts", effect="external")(step)
    flow.edge(START, "pure")
    flow.branch(
        "pure",
        lambda state: "on" if state.total < 5 else "over",
        {"on": "pure", "over": "acts"},
    )
    flow.edge("acts", END)
    advanced(flow)
    assert seen == [False, False, False, True, True, False]


@pytest.mark.usefixtures("patient")
def test_nor_is_an_async_one() -> None:
    seen: list[bool] = []

    async def step(state: Any, ctx: Any) -> dict[str, Any]:
        seen.append(here())
        return {"total": state.total + 1}

    flow = graph("async")
    flow.node("step")(step)
    flow.edge(START, "step")
    flow.branch(
        "step",
        lambda state: "on" if state.total < ROUNDS else "over",
        {"on": "step", "over": END},
    )
    assert advanced(flow).status == Status.COMPLETED
    assert seen == [False] * ROUNDS


@pytest.mark.usefixtures("patient")
def test_nor_is_one_that_returns_what_an_async_one_does() -> None:
    seen: list[bool] = []

    async def work(state: Any) -> dict[str, Any]:
        seen.append(here())
        return {"total": state.total + 1}

    flow = graph("returns-async")
    flow.node("step")(lambda state, ctx: work(state))
    flow.edge(START, "step")
    flow.branch(
        "step",
        lambda state: "on" if state.total < ROUNDS else "over",
        {"on": "step", "over": END},
    )
    assert advanced(flow).status == Status.COMPLETED
    assert seen == [False] * ROUNDS


@pytest.mark.usefixtures("patient")
def test_none_is_where_a_loop_runs_in_the_thread_of_the_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    run = started(loop("looped", lambda visit: asyncio.run(asyncio.sleep(0))))

    async def main() -> Run:
        return runs.advance(run.id)

    assert asyncio.run(main()).status == Status.COMPLETED


@pytest.mark.usefixtures("patient")
def test_none_is_beside_another_task_that_is_at_work() -> None:
    seen: list[tuple[int, bool]] = []
    again = threading.Event()

    def leaf(state: Any, ctx: Any) -> None:
        seen.append((ctx.attempt, here()))
        if ctx.payload == 0 and ctx.attempt == 1:
            raise OSError("again")
        if ctx.attempt == 2:
            again.set()

    flow = graph("beside-another")
    flow.node("split", sends=["leaf"])(
        lambda state, ctx: [Send("leaf", n) for n in range(5)]
    )
    flow.node("leaf", retry=Retry(attempts=2, backoff=0.2, jitter=0.0))(leaf)
    flow.node("act", effect="external")(
        lambda state, ctx: {"letter": str(again.wait(10))}
    )
    flow.edge(START, "split")
    flow.edge("split", "act")
    flow.edge("leaf", END)
    flow.edge("act", END)
    run = advanced(flow)
    assert run_actions.state(run)["letter"] == "True"
    assert sorted(seen) == [(1, False)] * 5 + [(2, False)]


def test_a_node_that_takes_its_time_is_not() -> None:
    seen: list[bool] = []

    def work(visit: int) -> None:
        seen.append(here())
        time.sleep(0.005)

    advanced(loop("slow", work))
    assert seen == [False] * ROUNDS


@pytest.mark.usefixtures("patient")
def test_a_failure_is_taken_for_slow() -> None:
    seen: list[bool] = []

    def work(visit: int) -> None:
        seen.append(here())
        if len(seen) in (3, 9):
            raise OSError("once")

    run = advanced(loop("fails", work, retry=Retry(attempts=2, backoff=0.0)))
    assert run.status == Status.COMPLETED
    assert seen == [False] * 6 + [True]
    runs.advance(runs.start("fails", {}).id)
    assert seen[7:] == [True, True, False, False, False, True, True]


@pytest.mark.usefixtures("patient")
def test_a_run_that_somebody_else_began_and_did_not_get_on_with_is_left_to_threads() -> (
    None
):
    seen: list[bool] = []
    run = started(loop("again", lambda visit: seen.append(here())))
    runs.advance(run.id)
    del seen[:]
    again = runs.start("again", {})
    Run.objects.filter(id=again.id).update(claims_since_progress=1)
    slice_of(again)
    assert seen == [False] * ROUNDS


# Surroundings


@pytest.mark.usefixtures("patient")
def test_it_has_a_connection_of_its_own_and_leaves_ours_alone() -> None:
    seen: list[Any] = []

    def work(visit: int) -> None:
        if visit > 3:
            seen.append(connection.connection)
            assert here()
            transaction.set_autocommit(False)
            Run.objects.count()
            seen.append(connection.in_atomic_block)

    connection.ensure_connection()
    ours = connection.connection
    run = advanced(loop("connects", work))
    assert run.status == Status.COMPLETED
    assert seen == [None, False] * 3
    assert connection.connection is ours
    assert connection.get_autocommit()


@pytest.mark.usefixtures("patient")
def test_what_it_sets_in_a_context_is_not_the_next_ones_to_see() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar(
        "word", default="nothing"
    )
    seen: list[str] = []

    def work(visit: int) -> None:
        seen.append(word.get())
        word.set("something")

    advanced(loop("contexts", work))
    assert seen == ["nothing"] * ROUNDS
    assert word.get() == "nothing"


@pytest.mark.usefixtures("patient")
def test_an_interrupt_from_the_keyboard_means_the_process_and_not_the_node() -> None:
    def work(visit: int) -> None:
        if visit == 5 and len(interrupted) == 0:
            interrupted.append(visit)
            raise KeyboardInterrupt

    interrupted: list[int] = []
    run = started(loop("interrupted", work))
    with pytest.raises(KeyboardInterrupt):
        runs.advance(run.id)
    run.refresh_from_db()
    assert run.status == Status.RUNNING
    assert run.superstep == 4
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    assert runs.advance(run.id).status == Status.COMPLETED


def _fan_out(name: str, leaf: Callable[[Any, Any], Any], leaves: int) -> Graph:
    flow = graph(name)
    flow.node("split", sends=["leaf"])(
        lambda state, ctx: [Send("leaf", n) for n in range(leaves)]
    )
    flow.node("leaf")(leaf)
    flow.edge(START, "split")
    flow.edge("leaf", END)
    return flow


@pytest.mark.usefixtures("patient")
def test_a_superstep_spends_only_so_long_here_and_gives_the_rest_to_threads() -> None:
    seen: list[bool] = []

    def leaf(state: Any, ctx: Any) -> dict[str, Any]:
        seen.append(here())
        time.sleep(0.02 if len(seen) > 3 else 0)
        return {"notes": [str(ctx.payload)]}

    registered(_fan_out("many", leaf, 3))
    runs.advance(runs.start("many", {}).id)
    flow = _fan_out("many", leaf, 12)
    run = advanced(flow)
    assert sorted(run_actions.state(run)["notes"], key=int) == [
        str(n) for n in range(12)
    ]
    assert 1 <= seen.count(True) <= 4


@pytest.mark.usefixtures("patient")
def test_a_worker_that_drains_begins_no_other() -> None:
    seen: list[int] = []
    draining = threading.Event()

    def leaf(state: Any, ctx: Any) -> None:
        seen.append(ctx.payload)
        if ctx.payload == 1 and len(seen) > 3:
            draining.set()

    registered(_fan_out("drained", leaf, 3))
    runs.advance(runs.start("drained", {}).id)
    flow = _fan_out("drained", leaf, 8)
    run = slice_of(started(flow), draining=draining.is_set)
    assert run.status == Status.QUEUED
    assert seen[3:] == [0, 1]


# What never returns


def test_a_run_whose_quick_node_never_returns_is_given_back_and_fails_by_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        inline, "QUICK_MS", 60_000
    )  # on a busy machine a moment more says nothing of the node
    release = threading.Event()
    stuck = threading.Event()

    def work(visit: int) -> None:
        if visit == 5:
            stuck.set()
            release.wait(90)

    flow = loop("stuck", work, timeout=1.0)
    run = started(flow)
    inline._quick[registry.current(flow.name).nodes["step"].fn] = inline.PROVEN
    first = threading.Thread(target=lambda: _quietly(run))
    first.start()
    assert stuck.wait(10)
    until(lambda: Run.objects.get(id=run.id).status == Status.QUEUED, seconds=60)
    Run.objects.filter(id=run.id).update(claims_since_progress=1)
    runs.advance(run.id)
    run.refresh_from_db()
    assert run.status == Status.FAILED
    assert run.superstep == 4
    assert "no result within 1 s" in (run_error.stored_error(run) or {})["message"]
    release.set()
    first.join(10)
    assert not first.is_alive()
    run.refresh_from_db()
    assert run.status == Status.FAILED
    assert run.superstep == 4


def _quietly(run: Run) -> None:
    try:
        runs.advance(run.id)
    finally:
        connection.close()


def test_a_worker_that_is_stuck_in_one_ends_and_its_place_is_taken(
    tmp_path: Path,
) -> None:
    log = tmp_path / "worker.log"
    with worker(log, COUNTERSIGN_WORKERS="1", COUNTERSIGN_TEST_QUICK_MS="60000"):
        run = runs.start("sticky", {"amount": 8, "seconds": 60})
        until(
            lambda: Run.objects.get(id=run.id).status == Status.FAILED,
            what=f"the timeout, see {log}",
        )
        run.refresh_from_db()
        assert "no result within 1 s" in (run_error.stored_error(run) or {})["message"]
        assert run.superstep == 8
        other = runs.start("sticky", {"amount": 99})
        until(
            lambda: Run.objects.get(id=other.id).status == Status.COMPLETED,
            what=f"the next run, see {log}",
        )
        until(
            lambda: "slice_stuck" in log.read_text(),
            what=f"the line about it, see {log}",
        )
