"""What a task reads from memory is written down only while its worker has the run."""

import threading
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from checkpoints.core.status import Status
from checkpoints.db import second_connection
from checkpoints.ledger import locked_run
from checkpoints.models import MemoryRecord, Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine.errors import StaleLease
from tests.races.meeting import Thread
from tests.support import run_actions
from tests.support.memory_graphs import chain, gone, remember, side_by_side
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
KEPT = ["snapshot", "journaled"]
FAR = "2100-01-01T00:00Z"


def _taken(run: Any) -> None:
    """Another worker has the run."""
    Run.objects.filter(id=run).update(epoch=F("epoch") + 1, lease_until=FAR)


def _given_back(run: Any) -> None:
    leases.give_back(run, Run.objects.values_list("epoch", flat=True).get(id=run))


@pytest.mark.parametrize("mode", KEPT)
@pytest.mark.parametrize("lose", [_taken, _given_back])
def test_who_has_lost_the_lease_writes_no_record_down_and_gets_no_answer(
    mode: str, lose: Any
) -> None:
    remember("sky", "blue")
    refused = []

    def read(state: Any, ctx: Any) -> None:
        if not refused:
            lose(ctx.run_id)
            try:
                ctx.memory.get("sky", "facts")
            except StaleLease as error:
                refused.append(error)
                assert not MemoryRecord.objects.exists()
        else:
            refused.append(ctx.memory.get("sky", "facts").content)

    gone(chain("late_reader", read, memory=mode))
    assert isinstance(refused[0], StaleLease)
    assert refused[1:] == ([] if lose is _taken else ["blue"])
    assert MemoryRecord.objects.count() == len(refused) - 1


@pytest.mark.parametrize("mode", KEPT)
def test_a_record_is_one_statement_and_no_transaction_around_it(mode: str) -> None:
    remember("sky", "blue")
    sent: list[str] = []

    def read(state: Any, ctx: Any) -> None:
        with counted() as statements:
            ctx.memory.get("sky", "facts")
        sent.extend(statements)

    gone(chain("counting_reader", read, memory=mode))
    assert [sql.split()[0] for sql in sent] == ["SELECT", "SELECT", "INSERT"], (
        "its records, the trace, the record"
    )


@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="on SQLite the node's transaction is the only one that writes",
)
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("mode", KEPT)
def test_people_and_the_heartbeat_get_the_runs_row_while_a_node_that_read_is_in_its_transaction(
    mode: str, atomic: bool
) -> None:
    remember("sky", "blue")
    done: list[str] = []

    def act(ctx: Any) -> None:
        with transaction.atomic():
            locked_run.lock_run(ctx.run_id)
        done.append("locked")
        assert (
            leases.heartbeat(ctx.run_id, Run.objects.get(id=ctx.run_id).epoch)
            == leases.Pulse.HELD
        )
        runs.cancel(ctx.run_id, reason="no longer wanted")
        done.append("cancelled")

    def read(state: Any, ctx: Any) -> None:
        with transaction.atomic():
            assert ctx.memory.get("sky", "facts").content == "blue"
            Thread(lambda: act(ctx)).outcome()
            done.append("read")

    options = [{"effect": "write", "atomic": True}] if atomic else ()
    run = gone(chain("reader_in_a_transaction", read, memory=mode, options=options))
    assert done == ["locked", "cancelled", "read"]
    assert "cancel_requested" in run_actions.log(run)


def test_a_record_outlasts_the_transaction_that_the_node_rolls_back() -> None:
    remember("sky", "blue")
    seen: list[Any] = []

    def read(state: Any, ctx: Any) -> None:
        try:
            with transaction.atomic():
                seen.append(ctx.memory.get("sky", "facts").content)
                raise LookupError
        except LookupError:
            seen.append(MemoryRecord.objects.filter(run=ctx.run_id).count())

    gone(chain("reader_that_rolls_back", read, memory="snapshot"))
    assert seen == ["blue", 1 if connection.vendor == "postgresql" else 0]


@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="on SQLite the node's transaction is the only one that writes",
)
def test_who_loses_the_lease_in_a_transaction_of_the_node_writes_no_further_record_down() -> (
    None
):
    remember("sky", "blue")
    refused: list[StaleLease] = []

    def read(state: Any, ctx: Any) -> None:
        with transaction.atomic():
            ctx.memory.get("sky", "facts")
            Thread(lambda: _taken(ctx.run_id)).outcome()
            try:
                ctx.memory.get("earth", "facts")
            except StaleLease as error:
                refused.append(error)

    gone(chain("late_reader_in_a_transaction", read, memory="snapshot"))
    assert len(refused) == MemoryRecord.objects.count() == 1


@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="on SQLite the node's transaction is the only one that writes",
)
def test_a_node_that_itself_keeps_its_run_locked_is_refused_a_record_and_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember("sky", "blue")
    monkeypatch.setattr(second_connection, "LOCK_SECONDS", 0.2)
    refused: list[OperationalError] = []

    def read(state: Any, ctx: Any) -> None:
        with transaction.atomic():
            locked_run.lock_run(ctx.run_id)
            try:
                ctx.memory.get("sky", "facts")
            except OperationalError as error:
                refused.append(error)

    gone(chain("reader_that_locks", read, memory="snapshot"))
    assert len(refused) == 1


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="on SQLite two atomic tasks take turns"
)
def test_atomic_tasks_that_read_at_once_do_not_wait_for_each_other() -> None:
    remember("sky", "blue")
    both = threading.Barrier(2, timeout=10)
    calls = list[str]()

    def read(ctx: Any) -> None:
        calls.append(ctx.node)
        ctx.memory.get("sky", "facts")
        both.wait()

    def first(state: Any, ctx: Any) -> None:
        read(ctx)

    def second(state: Any, ctx: Any) -> None:
        read(ctx)

    options = [{"effect": "write", "atomic": True}] * 2
    run = gone(
        side_by_side(
            "atomic_readers", first, second, options=options, memory="snapshot"
        )
    )
    assert run.status == Status.COMPLETED
    assert sorted(calls) == ["first", "second"]
    assert MemoryRecord.objects.count() == 2
