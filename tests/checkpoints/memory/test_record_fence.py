"""What a task reads from memory is written down only while its worker has the run."""

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from checkpoints.core.status import Status
from checkpoints.models import MemoryRecord, Run
from checkpoints.queue import leases
from orchestrator.engine.errors import StaleLease
from tests.races.meeting import Thread
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
def test_who_has_lost_the_lease_writes_no_record_down_and_gets_no_answer(mode: str, lose: Any) -> None:
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
    assert [sql.split()[0] for sql in sent] == ["SELECT", "SELECT", "INSERT"], "its records, the trace, the record"


def test_a_transaction_that_the_node_began_keeps_the_lease_until_its_record_is_committed() -> None:
    remember("sky", "blue")
    order: list[str] = []

    def read(state: Any, ctx: Any) -> None:
        with transaction.atomic():
            ctx.memory.get("sky", "facts")
            thief = Thread(lambda: (_taken(ctx.run_id), order.append("taken")))
            time.sleep(0.5)
            order.append("read")
        thief.outcome()

    gone(chain("reader_in_a_transaction", read, memory="snapshot"))
    assert order == ["read", "taken"]
    assert MemoryRecord.objects.count() == 1


@pytest.mark.skipif(connection.vendor == "sqlite", reason="on SQLite two atomic tasks take turns")
def test_atomic_tasks_that_read_at_once_do_not_wait_for_each_other() -> None:
    remember("sky", "blue")
    both, calls = threading.Barrier(2, timeout=10), list[str]()

    def read(ctx: Any) -> None:
        calls.append(ctx.node)
        ctx.memory.get("sky", "facts")
        both.wait()

    def one(state: Any, ctx: Any) -> None:
        read(ctx)

    def other(state: Any, ctx: Any) -> None:
        read(ctx)

    options = [{"effect": "write", "atomic": True}] * 2
    run = gone(side_by_side("atomic_readers", one, other, options=options, memory="snapshot"))
    assert (run.status, sorted(calls)) == (Status.COMPLETED, ["one", "other"])
    assert MemoryRecord.objects.count() == 2
