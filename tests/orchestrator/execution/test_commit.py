"""A commit that is on its way while the next pure tasks run: what may begin before it
is certain, and what becomes of that where it fails.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.db import fenced_transaction
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Retry
from tests.support import run_actions
from tests.support.small_graphs import advanced, graph, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)

only_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="on SQLite no commit is ever on its way"
)

LONGEST = 10.0
"""Seconds that a test waits for another thread."""


def chain(
    name: str,
    *,
    work: Callable[[int], Any] = lambda n: None,
    second: dict[str, Any] | None = None,
    **settings: Any,
) -> Graph:
    """Nodes n1 to n4, one after another, each of which does `work` and notes its
    number; all pure, but the second may be another.
    """
    flow = graph(name, **settings)
    for n in range(1, 5):

        def step(state: Any, ctx: Any, n: int = n) -> dict[str, Any]:
            work(n)
            return {"notes": [str(n)]}

        flow.node(f"n{n}", **(second or {} if n == 2 else {}))(step)
        flow.edge(START if n == 1 else f"n{n - 1}", f"n{n}")
    flow.edge("n4", END)
    return flow


def elsewhere(act: Callable[[], Any]) -> None:
    """Do it on another connection, and wait for it."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LONGEST)
    assert not thread.is_alive()
    assert errors == []


class _Around:
    """Acts before, or right after, the n-th checkpoint of this process is sent."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        at: int,
        *,
        before: Any = None,
        after: Any = None,
    ) -> None:
        self.sent = 0
        made = fenced_transaction.prepare

        def around(fence: Any, rows: Any, **options: Any) -> Any:
            send = made(fence, rows, **options)
            if not any(row.model is Checkpoint for row in rows):
                return send

            def sending() -> Any:
                self.sent += 1
                if before and self.sent == at:
                    before()
                met = send()
                if after and self.sent == at:
                    after()
                return met

            return sending

        monkeypatch.setattr(fenced_transaction, "prepare", around)


def lock(graph: str, *, release: threading.Event, most: float = 0.5) -> None:
    """Keep others from committing to the run of this graph, until `release` is set or
    so many seconds have passed.
    """
    has_it = threading.Event()

    def lease() -> None:
        try:
            with transaction.atomic():
                Run.objects.select_for_update().get(graph=graph)
                has_it.set()
                release.wait(most)
        finally:
            connections.close_all()

    threading.Thread(target=lease).start()
    assert has_it.wait(LONGEST)


def sound(run: Run, notes: list[str]) -> None:
    """The run is completed with these notes, each superstep is there once, and its rows
    verify.
    """
    run.refresh_from_db()
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == notes
    steps = (
        Checkpoint.objects.filter(run=run, source="superstep")
        .order_by("seq")
        .values_list("superstep", flat=True)
    )
    assert list(steps) == list(range(1, len(notes) + 1))
    assert verify_run(run.id) == []


@only_postgresql
def test_a_pure_task_begins_while_the_commit_before_it_is_on_its_way() -> None:
    assert not _waited("ahead")


@pytest.mark.parametrize(
    ("name", "second", "settings"),
    [
        ("reads", {"effect": "read"}, {}),
        ("writes", {"effect": "write"}, {}),
        ("acts", {"effect": "external", "idempotent": True}, {}),
        ("proposes", {"effect": "human", "gate": Gate(reviewers=["group:claims"])}, {}),
        ("held", {"approve": "writes", "gate": Gate(reviewers=["group:claims"])}, {}),
        ("goes-on", {}, {"on_save_error": "continue"}),
    ],
)
def test_any_other_begins_after_it(
    name: str, second: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert _waited(name, second, **settings)


def _waited(name: str, second: dict[str, Any] | None = None, **settings: Any) -> bool:
    """Return whether the second node began after the checkpoint before it was there,
    whose commit was held up for a while.
    """
    release = threading.Event()
    seen = []

    def work(n: int) -> None:
        if n == 1:
            lock(name, release=release)
        if n == 2:
            seen.append(Checkpoint.objects.filter(graph=name, superstep=1).exists())
            release.set()

    advanced(chain(name, second=second, work=work, **settings))
    return bool(seen[0])


def test_beside_an_open_gate_every_commit_is_certain_before_the_next_task() -> None:
    release = threading.Event()
    seen = []

    def work(n: int) -> None:
        if n == 2:
            lock("beside", release=release)
        if n == 3:
            seen.append(Checkpoint.objects.filter(graph="beside", superstep=2).exists())
            release.set()

    flow = chain("beside", work=work)
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: {"letter": "?"}
    )
    flow.edge(START, "ask")
    flow.edge("ask", END)
    assert slice_of(started(flow)).status == Status.PAUSED
    assert seen == [True]


# Somebody else writes meanwhile


def _wake(run: Run) -> None:
    Run.objects.filter(id=run.id).update(wakes=Run.objects.get(id=run.id).wakes + 1)


def _note(run: Run) -> None:
    with transaction.atomic():
        locked_run.append_locked(
            locked_run.lock_run(run.id), [NewEvent("noted", {})] * 2, at=timezone.now()
        )


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("act", [_wake, _note])
def test_a_commit_that_somebody_else_was_before_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[Run], None]
) -> None:
    ran: list[int] = []
    run = started(chain(f"anew-{at}", work=ran.append))
    around = _Around(monkeypatch, at, before=lambda: elsewhere(lambda: act(run)))
    runs.advance(run.id)
    sound(run, ["1", "2", "3", "4"])
    # What ran ahead of a commit that failed ran on what was not certain, and runs
    # again.
    assert ran == sorted([1, 2, 3, 4, *([at + 1] if at < 4 else [])])
    assert around.sent == 5
    assert RunEvent.objects.filter(run=run, type="noted").count() == (
        2 if act is _note else 0
    )


@pytest.mark.parametrize("disturbed", [False, True])
def test_the_log_keeps_the_attempts_of_a_commit_that_was_made_anew(
    monkeypatch: pytest.MonkeyPatch, disturbed: bool
) -> None:
    flow = graph("tries")
    tries = []

    @flow.node("n1", retry=Retry(attempts=2, backoff=0.0))
    def first(state: Any, ctx: Any) -> None:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise OSError("try again")

    flow.node("n2")(lambda state, ctx: None)
    flow.edge(START, "n1")
    flow.edge("n1", "n2")
    flow.edge("n2", END)
    run = started(flow)
    _Around(
        monkeypatch,
        1,
        before=(lambda: elsewhere(lambda: _wake(run))) if disturbed else None,
    )
    runs.advance(run.id)
    assert tries == [1, 2]
    facts = ["run_started", "retry_planned", "run_completed"]
    assert [
        line for line in run_actions.log(run) if line != "checkpoint_saved"
    ] == facts


def test_it_does_not_keep_those_of_tasks_that_ran_ahead_and_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[int] = []

    def work(n: int) -> None:
        ran.append(n)
        if ran.count(2) == 1 and n == 2:
            raise OSError("try again")

    run = started(
        chain(
            "ahead-again", work=work, second={"retry": Retry(attempts=2, backoff=0.0)}
        )
    )
    _Around(monkeypatch, 1, before=lambda: elsewhere(lambda: _wake(run)))
    runs.advance(run.id)
    assert ran == [1, 2, 2, 2, 3, 4]
    assert "retry_planned" not in run_actions.log(run)


@only_postgresql
def test_a_router_that_closes_the_connection_costs_nothing() -> None:
    numbers: list[int] = []

    def router(state: Any) -> str:
        connection.close()
        numbers.append(Run.objects.count())
        return "on" if len(state.notes) < 4 else "over"

    flow = graph("closes")
    flow.node("step")(lambda state, ctx: {"notes": [str(len(state.notes) + 1)]})
    flow.edge(START, "step")
    flow.branch("step", router, {"on": "step", "over": END})
    run = slice_of(started(flow))
    sound(run, ["1", "2", "3", "4"])
    assert numbers == [1] * 4


@pytest.mark.parametrize("at", [1, 2, 3])
def test_whoever_lost_the_lease_while_his_commit_is_on_its_way_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    run = started(chain(f"lost-{at}"))

    def take_over() -> None:
        Run.objects.filter(id=run.id).update(
            lease_until=timezone.now() - timedelta(seconds=1)
        )
        assert leases.claim_one(run.id) is not None

    around = _Around(monkeypatch, at, before=lambda: elsewhere(take_over))
    slice_of(run)
    assert run.status == Status.RUNNING
    assert run.superstep == at - 1
    assert around.sent == at
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    runs.advance(run.id)
    sound(run, ["1", "2", "3", "4"])


# The slice ends meanwhile


def test_a_worker_that_drains_lands_the_commit_that_is_on_its_way() -> None:
    draining = threading.Event()
    run = started(chain("drains", work=lambda n: draining.set() if n == 2 else None))
    slice_of(run, draining=draining.is_set)
    assert run.status == Status.QUEUED
    assert run.superstep in (1, 2)
    runs.advance(run.id)
    sound(run, ["1", "2", "3", "4"])


def test_a_slice_whose_time_is_up_lands_it_and_gives_the_run_back(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-6)
    run = started(chain("brief"))
    for superstep in (1, 2, 3):
        slice_of(run)
        assert run.status == Status.QUEUED
        assert run.superstep == superstep
    slice_of(run)
    sound(run, ["1", "2", "3", "4"])


def test_a_run_that_is_cancelled_meanwhile_ends_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = started(chain("cancelled"))
    _Around(
        monkeypatch,
        2,
        before=lambda: elsewhere(
            lambda: runs.cancel(run.id, reason="no longer wanted")
        ),
    )
    runs.advance(run.id)
    run.refresh_from_db()
    assert run.status == Status.CANCELLED
    assert verify_run(run.id) == []


def test_a_limit_that_is_met_while_a_commit_is_on_its_way_fails_the_run_behind_it() -> (
    None
):
    run = slice_of(started(chain("limited", max_supersteps=2)))
    assert run.status == Status.FAILED
    assert run.error_code == "runaway"
    assert run.superstep == 2
    assert run_actions.state(run)["notes"] == ["1", "2"]
    assert verify_run(run.id) == []


# The database fails meanwhile


@only_postgresql
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_connection_that_is_cut_while_a_commit_is_on_its_way_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    def cut() -> None:
        pid = connection.connection.info.backend_pid

        def kill() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])

        elsewhere(kill)

    run = started(chain(f"cut-{at}"))
    _Around(monkeypatch, at, after=cut)
    slice_of(run)
    assert run.status == Status.QUEUED
    assert run.superstep in (at - 1, at)
    runs.advance(run.id)
    sound(run, ["1", "2", "3", "4"])


@only_postgresql
def test_a_commit_that_the_database_refuses_stops_the_run_where_it_was() -> None:
    run = started(chain("refused"))
    with _refusing(superstep=2):
        runs.advance(run.id)
    run.refresh_from_db()
    assert run.status == Status.FAILED
    assert run.error_code == "save_failed"
    assert run.superstep == 1
    assert verify_run(run.id) == []
    runs.resume(run.id)
    runs.advance(run.id)
    sound(run, ["1", "2", "3", "4"])


@contextmanager
def _refusing(*, superstep: int) -> Iterator[None]:
    """The disk is full for checkpoints of this superstep."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$;"
            f"CREATE TRIGGER refuse BEFORE INSERT ON {Checkpoint._meta.db_table} FOR EACH ROW"
            f" WHEN (NEW.superstep = {superstep} AND NEW.committed) EXECUTE FUNCTION refuse()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse() CASCADE")


# Whoever watches


def test_whoever_watches_statements_sees_each_commit() -> None:
    seen: list[str] = []

    def spy(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if f'INSERT INTO "{Checkpoint._meta.db_table}"' in sql:
            seen.append(sql)
        return result

    run = started(chain("watched"))
    with connection.execute_wrapper(spy):
        runs.advance(run.id)
    assert len(seen) == 4
    sound(run, ["1", "2", "3", "4"])
