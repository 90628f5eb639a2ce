"""The lease of a slice that lasts is kept; a slice that is over at once has cost no
thread.
"""

import threading
import time
from typing import Any

import pytest

from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_columns
from orchestrator.engine import END, START
from orchestrator.execution import heartbeat
from orchestrator.execution.heartbeat import Heartbeat
from tests.support.processes import until
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lease() -> Lease:
    flow = graph("beating")
    flow.node("work")(lambda state, ctx: None)
    flow.edge(START, "work")
    flow.edge("work", END)
    return held(started(flow))


def _beats(lease: Lease) -> bool:
    return any(
        thread.name == f"heartbeat-{lease.id}" for thread in threading.enumerate()
    )


def test_a_slice_that_lasts_keeps_its_lease(configure: Any, lease: Lease) -> None:
    configure(LEASE_SECONDS=0.6)
    assert leases.heartbeat(lease.id, lease.epoch)
    with Heartbeat(lease) as heart:
        time.sleep(2.0)
        assert leases.is_held(lease.id)
        assert not heart.lost.is_set()
    assert not _beats(lease)


def test_slices_of_several_threads_keep_their_leases_each(configure: Any) -> None:
    configure(LEASE_SECONDS=0.6)
    flow = graph("side-by-side")
    flow.node("work")(lambda state, ctx: None)
    flow.edge(START, "work")
    flow.edge("work", END)
    holds = [held(started(flow)) for _ in range(3)]
    with Heartbeat(holds[0]), Heartbeat(holds[1]), Heartbeat(holds[2]):
        time.sleep(1.5)
        assert [leases.is_held(hold.id) for hold in holds] == [True] * 3


def test_a_short_slice_starts_no_thread(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(Heartbeat, "_beat", lambda heart: started.append(heart))
    with Heartbeat(lease):
        pass
    time.sleep(3 * heartbeat.WATCH_SECONDS)
    assert started == []


def test_a_watch_whose_thread_is_gone_gets_another(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    monkeypatch.setattr(heartbeat._watch, "_thread", ended)
    with Heartbeat(lease):
        until(lambda: _beats(lease), seconds=10)


def test_who_works_again_after_a_rest_is_watched_again(
    settings: Any, lease: Lease
) -> None:
    with Heartbeat(lease):
        pass
    until(
        lambda: (
            not any(thread.name == "heartbeats" for thread in threading.enumerate())
        ),
        seconds=10,
    )
    with Heartbeat(lease):
        until(lambda: _beats(lease), seconds=10)


def test_the_first_report_is_a_beat_at_once_whenever_a_watch_would_look(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "_watch", heartbeat._Watch())
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 4.0)
    with Heartbeat(lease) as heart:
        heart.report({"task": "work:1:0", "done": 1, "total": 2, "note": ""})
        until(lambda: bytes(Run.objects.get(id=lease.id).progress), seconds=3)
    assert (
        sealed_columns.read_value(Run.objects.get(id=lease.id), "progress")["done"] == 1
    )


def test_a_report_after_the_slice_is_nobodys(lease: Lease) -> None:
    with Heartbeat(lease) as heart:
        pass
    heart.report({"task": "work:1:0", "done": 1, "total": 2, "note": ""})
    time.sleep(3 * heartbeat.WATCH_SECONDS)
    assert not bytes(Run.objects.get(id=lease.id).progress)
