"""A save that fails: nothing of the superstep is applied and the run stops, or goes on
without claiming the point.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.signals import connection_created

from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import Checkpoint, Run, TaskResult
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Write
from orchestrator.engine.errors import UnknownThing
from orchestrator.execution import failed_save
from tests.support import run_actions
from tests.support.chain import join_in_a_row
from tests.support.payload_backends import Full
from tests.support.payload_runs import chain, columns, kept_files, notes
from tests.support.small_graphs import graph, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def failed(run: Run) -> dict[str, Any]:
    """The run has failed because of its save; why."""
    error = run_error.stored_error(run)
    assert error is not None
    assert run.status == Status.FAILED
    assert run.error_code == "save_failed"
    return error


def test_a_full_disk_stops_the_run_by_name_with_nothing_half_written_and_it_can_be_resumed(
    cellar: Path,
) -> None:
    run = started(chain("stops", "a", "b", "c", snapshot=1))
    Full.left = 2  # change and snapshot of the first superstep
    before = len(kept_files(cellar))
    run = runs.advance(run.id)
    error = failed(run)
    assert "payload backend 'cellar'" in error["message"]
    assert "No space left on device" in error["message"]
    assert "then resume" in error["cure"]
    assert notes(run) == ["a"]
    assert len(kept_files(cellar)) == before + 2 == columns(run)
    assert run_actions.log(run)[-1] == "run_failed"
    assert run.durable
    Full.left = None
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert notes(run) == ["a", "b", "c"]


def test_an_effect_that_was_recorded_before_its_save_failed_is_not_repeated(
    cellar: Path,
) -> None:
    flow = graph("pays", payloads="cellar", on_save_error="continue")
    paid = []

    @flow.node(effect="external")
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        paid.append(ctx.idempotency_key)
        return {"notes": ["paid"]}

    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = started(flow)
    Full.left = 0
    failed(runs.advance(run.id))
    assert TaskResult.objects.get(run=run).outcome == "done"
    Full.left = None
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert len(paid) == 1


# Continue


@contextmanager
def _full_for(node: str) -> Iterator[Callable[[Any, Any], dict[str, Any]]]:
    """A node during whose superstep, and no other, the disk is full."""

    def run(state: Any, ctx: Any) -> dict[str, Any]:
        Full.left = 0 if ctx.node == node else None
        return {"notes": [ctx.node]}

    yield run


def _chain(name: str, *nodes: str, full: str, **options: dict[str, Any]) -> Graph:
    flow = graph(name, payloads="cellar", on_save_error="continue")
    with _full_for(full) as run:
        for node in nodes:
            flow.node(node, **options.get(node, {}))(run)
    join_in_a_row(flow, *nodes)
    return flow


def test_a_run_that_may_go_on_does_so_without_claiming_the_point(cellar: Path) -> None:
    run = runs.advance(started(_chain("goes_on", "a", "b", "c", full="b")).id)
    assert run.status == Status.COMPLETED
    assert run.durable is False
    assert run.superstep == 3
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq"))
    assert [(row.seq, row.superstep) for row in rows] == [(0, 0), (1, 1), (2, 3)]
    with pytest.raises(UnknownThing):
        timeline.get_checkpoint(f"{run.key}:step-2")
    assert notes(run) == ["a", "b", "c"]
    changes = [
        change for change in timeline.changes(rows[-1]) if change.partition == "scratch"
    ]
    assert [(change.path, change.after) for change in changes] == [
        ("notes[1]", "b"),
        ("notes[2]", "c"),
    ]
    (content,) = run_actions.event_payloads(run, "warning")
    assert content["code"] == "not_saved"
    assert content["superstep"] == 2
    assert "No space left" in content["message"]


def test_the_mark_is_there_as_soon_as_the_point_is_missing(cellar: Path) -> None:
    seen: list[bool] = []
    flow = graph("marked", payloads="cellar", on_save_error="continue")

    @flow.node()
    def a(state: Any, ctx: Any) -> None:
        Full.left = 0

    @flow.node()
    def b(state: Any, ctx: Any) -> None:
        Full.left = None
        seen.append(Run.objects.get(id=ctx.run_id).durable)

    flow.edge(START, "a")
    flow.edge("a", "b")
    flow.edge("b", END)
    assert runs.advance(started(flow).id).status == Status.COMPLETED
    assert seen == [False]


def test_two_points_may_be_missing_one_after_another(cellar: Path) -> None:
    flow = graph("long", payloads="cellar", on_save_error="continue")
    for node in "abcd":
        flow.node(node)(_two(node))
    join_in_a_row(flow, *"abcd")
    run = runs.advance(started(flow).id)
    assert run.status == Status.COMPLETED
    assert run.durable is False
    assert [
        row.superstep for row in Checkpoint.objects.filter(run=run).order_by("seq")
    ] == [0, 1, 4]
    assert notes(run) == [*"abcd"]
    assert [
        content["superstep"] for content in run_actions.event_payloads(run, "warning")
    ] == [2, 3]


def _two(node: str) -> Callable[[Any, Any], dict[str, Any]]:
    def run(state: Any, ctx: Any) -> dict[str, Any]:
        Full.left = 0 if node in "bc" else None
        return {"notes": [node]}

    return run


def test_a_worker_that_dies_behind_a_missing_point_loses_it_and_the_next_one_makes_it_again(
    cellar: Path,
) -> None:
    made = _chain("dies", "a", "b", "c", full="b")
    run = started(made)
    run = slice_of(
        run, draining=lambda: not Run.objects.get(id=run.id).durable
    )  # b has run and was not saved
    saved = Checkpoint.objects.filter(run=run).latest("seq")
    assert run.status == Status.QUEUED
    assert saved.superstep == 1
    assert run.durable is False
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert notes(run) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("full", "options"),
    [
        ("a", {"b": {"effect": "external", "idempotent": True}}),  # the one before
        ("b", {"b": {"effect": "external", "idempotent": True}}),
        ("a", {"b": {"effect": "write", "idempotent": True}}),
        ("b", {"b": {"effect": "write", "idempotent": True}}),
        ("a", {"b": {"effect": "human", "gate": Gate(reviewers=["user:ann"])}}),
        ("b", {"b": {"effect": "human", "gate": Gate(reviewers=["user:ann"])}}),
        ("a", {"b": {"approve": "writes", "gate": Gate(reviewers=["user:ann"])}}),
        ("c", {}),  # the end
    ],
)
def test_no_point_may_be_missing_that_an_effect_a_person_or_the_end_needs(
    cellar: Path, full: str, options: dict[str, Any]
) -> None:
    run = runs.advance(started(_chain("needs", "a", "b", "c", full=full, **options)).id)
    failed(run)
    assert run.durable


def test_a_settlement_is_never_left_out(cellar: Path, people: Any) -> None:
    rita = run_actions.reviewer(people.reviewer)
    flow = graph("signed", payloads="cellar", on_save_error="continue")
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", "proposed")]
    )
    flow.node("after")(lambda state, ctx: {"notes": ["after"]})
    flow.edge(START, "ask")
    flow.edge("ask", "after", when=("approved", "partial"))
    flow.edge("after", END)
    run = runs.advance(started(flow).id)
    assert run.status == Status.PAUSED
    run_actions.sign(run, rita, ["approve"])
    Full.left = 0
    failed(runs.advance(run.id))
    assert run_actions.state(run)["letter"] == ""
    Full.left = None
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert run_actions.state(run)["letter"] == "proposed"


# The database itself is full


@contextmanager
def _full_database() -> Iterator[threading.Event]:
    """SQLite may not grow by a page, and has none free, until the event is set; each
    new connection is limited too.
    """
    mended = threading.Event()
    connection.cursor().execute("VACUUM")

    def limit(connection: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA page_count")
            (pages,) = cursor.fetchone()
            cursor.execute(
                f"PRAGMA max_page_count = {2**30 if mended.is_set() else pages}"
            )

    limit(connection)
    connection_created.connect(limit)
    try:
        yield mended
    finally:
        connection_created.disconnect(limit)
        connection.close()


def _only_sqlite() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite can be told how many pages its file may have")


def test_a_database_that_is_full_stops_the_run_where_there_is_room_for_that() -> None:
    _only_sqlite()
    flow = graph("big")
    full: list[threading.Event] = []

    @flow.node()
    def grow(state: Any, ctx: Any) -> dict[str, Any]:
        for mended in full:
            threading.Timer(1.0, mended.set).start()
        return {"letter": "".join(map(str, range(200_000)))}

    flow.edge(START, "grow")
    flow.edge("grow", END)
    run = started(flow)
    with _full_database() as mended:
        full.append(mended)
        run = runs.advance(run.id)
    error = failed(run)
    assert "full" in error["message"]
    assert Checkpoint.objects.filter(run=run).count() == 1
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED


class _NoRoom:
    """Refuses every write of this process as a full disk would, from the moment that a
    node says so.
    """

    def __init__(self) -> None:
        self.full = False
        self.refused = 0

    def __call__(
        self, execute: Any, sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if self.full and sql.startswith(("INSERT", "UPDATE", "WITH")):
            self.refused += 1
            cause = RuntimeError("disk full")
            cause.sqlite_errorcode = 13
            cause.sqlstate = "53100"
            raise OperationalError("database or disk is full") from cause
        return execute(sql, params, many, context)


@contextmanager
def _no_room() -> Iterator[_NoRoom]:
    """Refuse to save on every connection: a wrapper of a single connection would be
    gone with it.
    """
    room = _NoRoom()
    connection.execute_wrappers.append(room)
    try:
        yield room
    finally:
        connection.execute_wrappers.remove(room)


def _fills(room: _NoRoom) -> Graph:
    flow = graph("fills")

    @flow.node()
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        room.full = True
        return {"notes": ["a"]}

    flow.edge(START, "a")
    flow.edge("a", END)
    return flow


def test_where_not_even_the_failure_can_be_written_it_is_tried_until_there_is_room(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {"LEASE_SECONDS": 5}
    with _no_room() as room:
        run = started(_fills(room))
        threading.Timer(1.2, lambda: setattr(room, "full", False)).start()
        run = slice_of(run)
    assert room.refused >= 3
    failed(run)


def test_where_there_is_no_room_for_the_length_of_a_lease_the_worker_leaves_and_another_takes_over(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {"LEASE_SECONDS": 1}
    with _no_room() as room:
        run = started(_fills(room))
        begun = time.monotonic()
        room.full = False
        from checkpoints.queue import leases
        from orchestrator.execution import loop

        claim = leases.claim_one(run.id)
        assert claim is not None
        loop.run_slice(claim.id, claim.epoch)
        assert 0.4 < time.monotonic() - begun < 4
    run.refresh_from_db()
    assert run.status == Status.RUNNING
    assert run.error_code == ""
    assert Checkpoint.objects.filter(run=run).count() == 1
    Run.objects.filter(id=run.id).update(lease_until="2000-01-01T00:00Z")
    assert runs.advance(run.id).status == Status.COMPLETED


def test_on_a_full_database_a_run_that_may_go_on_does_and_the_next_commit_marks_it() -> (
    None
):
    with _no_room() as room:
        flow = graph("db_goes_on", on_save_error="continue")

        @flow.node()
        def a(state: Any, ctx: Any) -> dict[str, Any]:
            room.full = True
            return {"notes": ["a"]}

        @flow.node()
        def b(state: Any, ctx: Any) -> dict[str, Any]:
            room.full = False
            return {"notes": ["b"]}

        flow.edge(START, "a")
        flow.edge("a", "b")
        flow.edge("b", END)
        run = started(flow)
        run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run.durable is False
    assert notes(run) == ["a", "b"]
    assert [
        row.superstep for row in Checkpoint.objects.filter(run=run).order_by("seq")
    ] == [0, 2]
    assert [
        content["superstep"] for content in run_actions.event_payloads(run, "warning")
    ] == [1]


def test_an_effect_whose_result_could_not_be_recorded_is_unknown_and_not_repeated(
    settings: Any,
) -> None:
    settings.COUNTERSIGN = {"LEASE_SECONDS": 5}
    paid = []
    with _no_room() as room:
        flow = graph("unrecorded")

        @flow.node(effect="external")
        def pay(state: Any, ctx: Any) -> dict[str, Any]:
            room.full = True
            paid.append(ctx.idempotency_key)
            return {"notes": ["paid"]}

        flow.edge(START, "pay")
        flow.edge("pay", END)
        run = started(flow)
        threading.Timer(1.2, lambda: setattr(room, "full", False)).start()
        run = slice_of(run)
    assert run.status == Status.UNKNOWN
    assert run.error_code == "save_failed"
    runs.settle(
        run.id,
        "pay:1:0",
        happened=True,
        output={"notes": ["paid"]},
        accept_risk=True,
        reason="looked",
    )
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert notes(run) == ["paid"]
    assert len(paid) == 1


def test_a_connection_that_broke_is_no_refusal_and_nothing_is_skipped() -> None:
    assert not failed_save.is_refusal(
        OperationalError("server closed the connection unexpectedly")
    )


def test_the_run_page_and_the_api_say_that_a_point_is_missing_and_why_a_save_failed(
    cellar: Path, people: Any, client: Any
) -> None:
    client.force_login(people.auditor)
    whole = runs.advance(started(chain("whole", "a")).id)
    missing = runs.advance(started(_chain("missing", "a", "b", "c", full="b")).id)
    stopped = started(chain("stopped", "a"))
    Full.left = 0
    stopped = runs.advance(stopped.id)
    pages = {
        run.graph: client.get(f"/runs/{run.id}/").content.decode()
        for run in (whole, missing, stopped)
    }
    assert [
        "Not durable" in pages[name] for name in ("whole", "missing", "stopped")
    ] == [False, True, False]
    assert "superstep 2 was not saved" in pages["missing"]
    assert "Mend the storage that is named" in pages["stopped"]
    durable = [
        client.get(f"/api/v1/runs/{run.id}/").json()["durable"]
        for run in (whole, missing)
    ]
    assert durable == [True, False]
