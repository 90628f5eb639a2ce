"""A heartbeat whose thread does not start at once: neither this slice nor another may
work without a heartbeat.
"""

import math
import os
import threading
import time
from uuid import uuid4

import pytest
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.execution import heartbeat
from orchestrator.execution.heartbeat import Heartbeat
from tests.support.small_graphs import graph, held, registered, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def short_of_threads(monkeypatch):
    """The first thread of a heartbeat is refused, as by a limit on processes."""
    start = threading.Thread.start
    refused = []

    def once(self):
        if self.name.startswith("heartbeat-") and not refused:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", once)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    return refused


def simple(name="beats"):
    flow = graph(name)
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    return flow


def leased(lease):
    return Run.objects.get(id=lease.id).lease_until > timezone.now()


def test_it_is_tried_again_while_the_slice_lasts(short_of_threads, configure):
    configure(LEASE_SECONDS=0.9)
    lease = held(started(simple()))
    heart = Heartbeat(lease)
    heart.__enter__()
    time.sleep(1.5)
    assert short_of_threads
    assert leased(lease), "the slice works on, and its lease has run out"


def test_the_hearts_of_other_slices_of_the_process_beat_all_the_same(
    short_of_threads, configure
):
    configure(LEASE_SECONDS=0.9)
    flow = registered(simple())
    holds = [held(runs.start(flow.name, {})) for _ in range(6)]
    hearts = [Heartbeat(lease) for lease in holds]
    for heart in hearts:
        heart.__enter__()
    time.sleep(1.5)
    assert short_of_threads
    lost = [
        lease
        for lease in holds
        if not leased(lease) and f"heartbeat-{lease.id}" not in short_of_threads
    ]
    assert not lost, (
        f"{len(lost)} slices lost their lease because another's thread could not start"
    )


def test_the_end_of_the_slice_is_no_error(short_of_threads):
    lease = held(started(simple()))
    with Heartbeat(lease):
        time.sleep(0.4)
    assert short_of_threads


def test_a_report_costs_the_node_nothing(short_of_threads):
    flow = graph("reports")

    @flow.node(effect="external")
    def a(state, ctx):
        ctx.report(1, 2)

    flow.edge(START, "a")
    flow.edge("a", END)
    run = runs.advance(started(flow).id)
    assert short_of_threads
    assert run.status == Status.COMPLETED, run.status


def test_a_forked_child_keeps_no_lease_of_its_parent(configure):
    configure(LEASE_SECONDS=0.9)
    lease = held(started(simple()))
    facts, tells = os.pipe()
    with Heartbeat(lease):
        if os.fork() == 0:
            os.write(tells, str(len(heartbeat._watch._young)).encode())
            os._exit(0)
        os.wait()
    assert os.read(facts, 10) == b"0"


def test_a_slice_that_cannot_begin_for_want_of_a_thread_has_nobody_who_keeps_its_lease(
    monkeypatch,
):
    def none(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heartbeat, "_watch", heartbeat._Watch())
    lease = held(started(simple()))
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError), Heartbeat(lease):
            pytest.fail("the slice began")
    with Heartbeat(held(started(simple("other")))):
        time.sleep(3 * heartbeat.WATCH_SECONDS)
        assert not any(
            thread.name == f"heartbeat-{lease.id}" for thread in threading.enumerate()
        )


def test_a_slice_that_is_stuck_is_let_go_of_also_where_its_lease_was_lost_before(
    monkeypatch, configure
):
    configure(LEASE_SECONDS=0.9)
    lease = held(started(simple()))
    let_go = threading.Event()
    monkeypatch.setattr(Heartbeat, "_let_go", lambda heart: let_go.set())
    with Heartbeat(lease) as heart:
        Run.objects.filter(id=lease.id).update(epoch=lease.epoch + 1)
        assert heart.lost.wait(10)
        heart.busy_until = time.monotonic()
        assert let_go.wait(10)


@pytest.mark.parametrize("returns", [False, True])
def test_a_workers_process_ends_only_where_its_slice_is_still_stuck(
    monkeypatch, returns
):
    lease = held(started(simple()))
    exits = []
    given_back = threading.Event()
    lease.worker = uuid4()
    monkeypatch.setattr(heartbeat.os, "_exit", exits.append)

    def give_back(run_id, epoch):
        if returns:
            heart.busy_until = math.inf
        given_back.set()

    monkeypatch.setattr(heartbeat.leases, "give_back", give_back)
    with Heartbeat(lease) as heart:
        heart.busy_until = time.monotonic()
        assert given_back.wait(10)
        heart._thread.join(10)
    assert exits == ([] if returns else [heartbeat.STUCK])
