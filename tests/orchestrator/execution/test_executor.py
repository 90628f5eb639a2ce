"""A place for each attempt: what has an intent begins, what nobody waits for does not,
and who is done gives his place to the next.
"""

import threading
import time
from itertools import groupby
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import tasks_of
from checkpoints.models import RunEvent
from orchestrator.engine import END, START, Send
from orchestrator.execution import executor
from orchestrator.execution.attempt import Attempt
from orchestrator.execution.executor import Executor
from tests.support.small_graphs import advanced, graph, slice_of, started
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("effect", ["read", "external"])
def test_no_leaf_begins_after_the_slice_was_given_back(
    monkeypatch: Any, effect: str
) -> None:
    """The database fails when a result is recorded, and again when it is to be kept as
    evidence.
    """
    monkeypatch.setattr(executor, "MOST_AT_ONCE", 2)
    flow = graph(f"zombies-{effect}")
    calls = list[float]()

    @flow.node(sends=["leaf", "odd"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("odd", 0), *(Send("leaf", n) for n in range(40))]

    @flow.node(effect="external", idempotent=True)
    def odd(state: Any, ctx: Any) -> None:
        pass

    @flow.node(effect=effect, **({"idempotent": True} if effect == "external" else {}))
    def leaf(state: Any, ctx: Any) -> None:
        calls.append(time.monotonic())
        time.sleep(0.03)

    flow.edge(START, "split")
    flow.edge("leaf", END)
    flow.edge("odd", END)

    def fails(*arguments: Any, **named: Any) -> Any:
        raise OperationalError("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_results", fails)
        patch.setattr(journal, "keep_late_results", fails)
        slice_of(started(flow))
        ended = time.monotonic()
        time.sleep(1)
    after = [at for at in calls if at > ended + 0.05]
    assert not after, f"{len(after)} leaves began after the run was given back"


def test_a_task_that_never_began_is_not_unknown_after_a_drain(
    monkeypatch: Any, configure: Any
) -> None:
    """The thread of a finished leaf takes 0.6 s to close its connection; its place is
    not free, though its result is in; the next leaf gets an intent and no place; the
    drain takes it back; it is unknown without having begun.
    """
    configure(GRACE_SECONDS=5)
    monkeypatch.setattr(executor, "MOST_AT_ONCE", 1)
    flow = graph("no-place")
    calls = list[int]()
    drain = threading.Event()

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(3)]

    @flow.node(effect="external")
    def leaf(state: Any, ctx: Any) -> None:
        calls.append(ctx.payload)
        connection.ensure_connection()
        if not drain.is_set():
            threading.Timer(0.2, drain.set).start()

    flow.edge(START, "split")
    flow.edge("leaf", END)
    close = BaseDatabaseWrapper.close

    def slow(self: Any) -> None:
        if threading.current_thread().name.startswith("leaf"):
            time.sleep(0.6)
        close(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "close", slow)
    run = slice_of(started(flow), draining=drain.is_set)
    content = RunEvent.objects.filter(type="effects_started", node="leaf").values_list(
        "task", flat=True
    )
    begun = sum(len(tasks_of(line)) for line in content)
    called = len(calls)
    assert begun == called, "an intent was written for a task that never began"
    again = slice_of(run) if run.status == Status.QUEUED else run
    assert again.status == Status.COMPLETED


@pytest.mark.parametrize("effect", ["pure", "external"])
def test_leaves_go_on_while_the_connection_of_a_finished_one_hangs_in_its_close(
    monkeypatch: Any, effect: str
) -> None:
    monkeypatch.setattr(executor, "MOST_AT_ONCE", 2)
    flow = graph(f"hung-{effect}")

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(4)]

    @flow.node(effect=effect, timeout=5.0)
    def leaf(state: Any, ctx: Any) -> None:
        if ctx.payload < 2:
            connection.ensure_connection()

    flow.edge(START, "split")
    flow.edge("leaf", END)
    close = BaseDatabaseWrapper.close
    run_has_ended = threading.Event()
    closed_before_the_end: list[str] = []

    def hung(self: Any) -> None:
        name = threading.current_thread().name
        if name.startswith("leaf") and not run_has_ended.wait(30):
            closed_before_the_end.append(name)
        close(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "close", hung)
    run = slice_of(started(flow))
    run_has_ended.set()
    assert run.status == Status.COMPLETED
    assert closed_before_the_end == [], (
        "finished leaves kept their places until their connections were closed"
    )


@pytest.mark.parametrize("how", ["returns", "times out"])
@pytest.mark.parametrize("effect", ["pure", "external"])
def test_no_leaf_begins_after_the_drain_was_asked(
    monkeypatch: Any, effect: str, how: str
) -> None:
    monkeypatch.setattr(executor, "MOST_AT_ONCE", 1)
    flow = graph(f"window-{effect}-{how[0]}")
    at = list[float]()
    drain = threading.Event()
    calls: list[float] = []

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(4)]

    @flow.node(effect=effect, timeout=1.5)
    def leaf(state: Any, ctx: Any) -> None:
        at.append(time.monotonic())
        if how == "times out" and len(at) == 1:
            # Well before the time limit, so that a busy machine begins no other first.
            time.sleep(0.5)
        if not calls:
            calls.append(time.monotonic())
            drain.set()
        if how == "times out":
            time.sleep(1.3)

    flow.edge(START, "split")
    flow.edge("leaf", END)
    slice_of(started(flow), draining=drain.is_set)
    time.sleep(1.5)
    late = [round(one - calls[0], 3) for one in at if one > calls[0]]
    assert not late


def test_each_try_of_an_atomic_attempt_has_the_same_deadline() -> None:
    flow = graph("atomic-deadline")
    seen = list[float]()

    @flow.node(effect="write", atomic=True, timeout=3)
    def book(state: Any, ctx: Any) -> None:
        seen.append(ctx.deadline)
        if len(seen) < 3:
            time.sleep(0.4)
            raise OperationalError("deadlock detected")

    flow.edge(START, "book")
    flow.edge("book", END)
    advanced(flow)
    assert max(seen) - min(seen) < 0.1


def _all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of a superstep are looked at once all of its attempts have ended."""
    wait = Executor._wait_for_attempts

    def wait_for_all(self: Executor) -> list[Attempt]:
        while self._results.qsize() < len(self._running):
            time.sleep(0.001)
        return wait(self)

    monkeypatch.setattr(Executor, "_wait_for_attempts", wait_for_all)


def test_a_hundred_journaled_leaves_are_written_in_few_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _all_at_once(monkeypatch)
    flow = graph("many-leaves")
    flow.node("split", sends=["leaf"])(
        lambda state, ctx: [Send("leaf", n) for n in range(100)]
    )
    flow.node("leaf", effect="external", idempotent=True)(
        lambda state, ctx: {"notes": ["done"]}
    )
    flow.edge(START, "split")
    flow.edge("leaf", END)
    # The first run connects, and prepares what the second finds.
    advanced(flow)
    run = started(flow)
    traced: list[str] = []
    if connection.vendor == "sqlite":
        # What reaches the database, whatever its driver was called with.
        connection.connection.set_trace_callback(traced.append)
    with counted() as sent:
        slice_of(run)
    if connection.vendor == "sqlite":
        connection.connection.set_trace_callback(None)
    run.refresh_from_db()
    assert run.status == Status.COMPLETED
    # SQLite repeats the text of a statement for each that its triggers execute.
    statements = [text for text, _ in groupby(traced or sent)]
    assert len(statements) <= {"sqlite": 26, "postgresql": 13}[connection.vendor]
