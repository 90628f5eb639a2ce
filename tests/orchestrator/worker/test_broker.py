"""The broker: claims no more than it has slots for, and hands out (run, epoch)."""

import os

import pytest
from django.db import connection
from django.utils import timezone
from django_q.signing import SignedPackage

from checkpoints.models import Run, Worker
from checkpoints.queue import leases
from orchestrator.worker import broker as run_broker
from orchestrator.worker import registration, tasks
from tests.support.clusters import slow, status
from tests.support.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


def begin_one(broker):
    """Let this process do what a worker would do first. Gives the claim."""
    (slot,) = broker.state.slots.unbegun()[:1]
    assert broker.state.slots.take(slot.claim)
    return slot.claim


def test_it_claims_no_more_runs_than_it_has_slots(broker):
    begun = [slow() for _ in range(4)]
    assert len(broker.dequeue()) == len(broker.state.slots) == 2
    assert broker.dequeue() == []
    assert sorted(status(run) for run in begun) == [
        "queued",
        "queued",
        "running",
        "running",
    ]
    broker.state.slots.leave(begin_one(broker))
    assert len(broker.dequeue()) == 1


def test_a_message_holds_the_run_and_its_epoch_only(broker):
    run = slow()
    ((_, message),) = broker.dequeue()
    task = SignedPackage.loads(message)
    assert task["func"] == tasks.ADVANCE
    assert task["args"] == (str(run.id), 1)
    assert task["kwargs"] == {}


def test_runs_of_graphs_that_this_process_does_not_know_are_left_alone(broker):
    run = slow()
    Run.objects.filter(id=run.id).update(graph="elsewhere", fingerprint="0" * 64)
    assert broker.dequeue() == []
    assert status(run) == "queued"


def test_what_waits_for_a_worker_is_renewed(broker):
    run = slow()
    broker.dequeue()
    Run.objects.filter(id=run.id).update(lease_until=timezone.now())
    broker._renew_at = 0.0
    broker.dequeue()
    assert leases.claim_one(run.id) is None


def test_a_drained_cluster_takes_nothing_and_hands_back_what_nobody_began(broker):
    waiting = slow()
    begun = slow()
    broker.dequeue()
    taken = begin_one(broker)
    broker.state.drain()
    assert broker.dequeue() == []
    assert {taken.id} == {
        run.id for run in (waiting, begun) if status(run) == "running"
    }
    assert broker.state.slots.free() == 1


def test_a_message_that_was_handed_back_changes_nothing(broker):
    run = slow()
    broker.dequeue()
    broker.state.drain()
    broker.dequeue()
    tasks.advance(str(run.id), 1)
    assert status(run) == "queued"
    assert Run.objects.get(id=run.id).claims_since_progress == 0


def test_a_task_works_on_its_run_and_leaves_its_slot(broker):
    run = slow()
    ((_, message),) = broker.dequeue()
    tasks.advance(*SignedPackage.loads(message)["args"])
    assert status(run) == "completed"
    assert broker.state.slots.free() == 2


def test_a_cluster_whose_workers_read_nothing_gives_itself_up(broker, monkeypatch):
    run = slow()
    broker.dequeue()
    monkeypatch.setattr(run_broker, "UNBEGUN_SECONDS", -1.0)
    broker._renew_at = 0.0
    with pytest.raises(SystemExit):
        broker.dequeue()
    assert status(run) == "queued"


def test_other_tasks_cannot_be_put_into_it(broker):
    with pytest.raises(TypeError, match=r"orchestrator\.runs\.start"):
        broker.enqueue("a task")


def test_it_tells_how_many_runs_want_a_worker_and_how_many_have_one(broker):
    for _ in range(3):
        slow()
    broker.dequeue()
    assert broker.queue_size() == 1
    assert broker.lock_size() == 2
    assert broker.ping() is True


def test_a_lost_database_is_survived(broker, monkeypatch):
    monkeypatch.setattr(run_broker, "NO_DATABASE_SECONDS", 0.0)
    broker.dequeue()
    _break_connections(broker)
    run = slow()
    while not (taken := broker.dequeue()):
        pass
    assert taken[0][0] == f"{run.id}:1"


def _break_connections(broker):
    """Break the connections, as a restart of PostgreSQL does; on SQLite nothing can
    break that way.
    """
    if connection.vendor == "postgresql":
        broker._listener._link.connection.close()


def test_it_shows_itself_and_goes(broker):
    broker.dequeue()
    row = Worker.objects.get(id=broker.state.worker)
    assert row.pid == os.getppid()
    assert row.slots == 2
    assert row.busy == 0
    assert row.stopped_at is None
    assert row.process_started > 0
    assert row.fingerprints
    registration.leave(broker.state)
    row.refresh_from_db()
    assert row.stopped_at is not None


def test_it_drains_when_its_row_says_so(broker):
    broker.dequeue()
    Worker.objects.update(draining=True)
    broker._presence._next = 0.0
    broker.dequeue()
    assert broker.state.draining()


def test_a_cut_listening_connection_is_a_lost_database_and_not_the_end_of_the_pusher(
    broker, monkeypatch
):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has a connection that listens")
    monkeypatch.setattr(run_broker, "NO_DATABASE_SECONDS", 0.0)
    broker.dequeue()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(%s)",
            [broker._listener._link.connection.info.backend_pid],
        )
    first = broker._listener._link
    until(
        lambda: broker.dequeue() == [] and broker._listener._link is not first,
        seconds=5,
        what="the cut to be noticed",
    )
    run = slow()
    while not (taken := broker.dequeue()):
        pass
    assert taken[0][0] == f"{run.id}:1"
