"""Real clusters, whose processes are killed, frozen and drained."""

import os
import signal
import time

import pytest
from django.core.management import call_command
from django.db import connection

from checkpoints.models import Run, Worker
from orchestrator import runs
from orchestrator.worker.cluster import MARGIN_SECONDS
from tests.support.clusters import begun, children, cluster, ended, send, slow, status
from tests.support.processes import calls, until

pytestmark = pytest.mark.django_db(transaction=True)


def gone(started):
    """Wait until nothing of it is left."""
    until(lambda: not started.alive(), seconds=20, what="all processes to end")


@pytest.mark.parametrize("role", ["idle worker", "pusher", "monitor", "sentinel"])
def test_a_process_that_others_wait_for_is_killed_and_the_cluster_starts_again(
    tmp_path, role
):
    with cluster(tmp_path) as started:
        first = started.row()
        victim = {
            "idle worker": lambda: started.workers()[0],
            "pusher": started.pusher,
            "monitor": started.monitor,
            "sentinel": started.sentinel,
        }[role]()
        old = children(started.main.pid) + children(started.sentinel())
        send(victim, signal.SIGKILL)
        until(
            lambda: first.pid not in children(started.main.pid),
            what="the old cluster to end",
        )
        started.ready()
        assert not set(old) & set(started.alive())
        first.refresh_from_db()
        assert first.stopped_at is not None
        ended(*(slow() for _ in range(4)))


def test_a_busy_worker_is_killed_and_neither_its_run_nor_its_slot_is_lost(tmp_path):
    with cluster(tmp_path) as started:
        victim_run = slow(1.5)
        begun(victim_run)
        send(started.busy(), signal.SIGKILL)
        # Long enough that a slow machine sees the second begin before the first ends.
        both = [slow(4.0), slow(4.0)]
        until(
            lambda: [status(run) for run in both] == ["running", "running"],
            what="both slots to be at work at once",
        )
        ended(victim_run, *both)
        assert started.main.poll() is None


def test_a_signal_to_the_whole_group_and_to_every_process_stops_it_cleanly(tmp_path):
    with cluster(tmp_path) as started:
        os.killpg(started.main.pid, signal.SIGTERM)
        for pid in started.alive():
            send(pid, signal.SIGTERM)
        assert started.main.wait(15) == 0
        gone(started)


def test_a_signal_to_the_whole_group_with_a_run_in_hand_stops_it_and_the_run_goes_on_elsewhere(
    tmp_path,
):
    with cluster(tmp_path) as started:
        begun(run := slow(1.5))
        for pid in started.alive():
            send(pid, signal.SIGTERM)
        started.main.wait(15)
        gone(started)
    with cluster(tmp_path):
        ended(run)


def test_a_worker_leaves_a_line_in_the_log_when_it_starts_and_when_it_stops(tmp_path):
    with cluster(tmp_path) as started:
        started.says("worker_started")
        assert "worker_stopped" not in started.log.read_text()
        started.main.send_signal(signal.SIGTERM)
        started.main.wait(15)
        assert "worker_stopped" in started.log.read_text()


def test_a_killed_main_process_leaves_nothing_alive(tmp_path):
    with cluster(tmp_path) as started:
        begun(run := slow(30))
        send(started.main.pid, signal.SIGKILL)
        gone(started)
        assert status(run) == "running"


def test_a_drain_gives_runs_back_within_the_grace_period(tmp_path):
    with cluster(tmp_path) as started:
        begun(run := slow(30))
        started.main.send_signal(signal.SIGTERM)
        drain_began = time.monotonic()
        assert started.main.wait(15) == 0
        assert time.monotonic() - drain_began < 1.0 + MARGIN_SECONDS
        row = Run.objects.get(id=run.id)
        assert row.status == "queued"
        assert row.lease_until is None
        assert row.leased_by is None
        assert Worker.objects.get().stopped_at is not None
        gone(started)


def test_a_run_that_ends_within_the_grace_period_is_not_given_back(tmp_path):
    with cluster(tmp_path, COUNTERSIGN_GRACE_SECONDS="10") as started:
        run = slow(1.5, folder=tmp_path)
        # A run whose node has not begun is given back at once.
        until(lambda: calls(tmp_path, "dozing"), what="the node to begin")
        started.main.send_signal(signal.SIGTERM)
        assert started.main.wait(15) == 0
        saved = Run.objects.get(id=run.id)
        assert (saved.status, saved.superstep) in {("queued", 1), ("completed", 1)}


def test_the_drain_command_ends_workers_from_outside(tmp_path, capsys):
    with cluster(tmp_path) as started:
        call_command("drain")
        assert started.main.wait(10) == 0
        assert "All have ended." in capsys.readouterr().out


def test_a_new_run_goes_to_the_idle_cluster_at_once(tmp_path):
    with (
        cluster(tmp_path, COUNTERSIGN_WORKERS="1") as busy,
        cluster(tmp_path, COUNTERSIGN_WORKERS="1") as idle,
    ):
        begun(slow(30))
        waits = []
        for _ in range(5):
            started_at = time.monotonic()
            ended(slow())
            waits.append(time.monotonic() - started_at)
        assert max(waits) < 2.0, waits
        assert busy.main.poll() is idle.main.poll() is None


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("pusher", "nothing was claimed"),
        ("sentinel", "has not looked after"),
        ("idle workers", "queue_wedged"),
    ],
)
def test_a_wedged_cluster_is_noticed_and_works_again_within_thirty_seconds(
    tmp_path, role, content
):
    with cluster(tmp_path) as started:
        first = started.sentinel()
        frozen = {
            "pusher": [started.pusher()],
            "sentinel": [first],
            "idle workers": started.workers(),
        }[role]
        for pid in frozen:
            send(pid, signal.SIGSTOP)
        wedged = time.monotonic()
        run = slow()
        until(
            lambda: first not in children(started.main.pid),
            seconds=30,
            what="the watchdog",
        )
        ended(run, seconds=10)
        assert time.monotonic() - wedged < 30.0
        assert content in started.log.read_text()


def test_a_run_that_takes_its_workers_down_is_parked_and_the_others_go_on(tmp_path):
    with cluster(tmp_path, COUNTERSIGN_MAX_CLAIMS_WITHOUT_PROGRESS="2"):
        deadly = runs.start("deadly", {"folder": str(tmp_path)})
        others = [slow(0.2) for _ in range(6)]
        ended(*others, seconds=30)
        until(
            lambda: status(deadly) == "failed",
            seconds=40,
            what="the poison to be noticed",
        )
        assert Run.objects.get(id=deadly.id).error_code == "poison"
        assert len(calls(tmp_path, "died")) == 2
        ended(slow())
    runs.resume(deadly.id)
    assert status(deadly) == "queued"


@pytest.mark.skipif(
    connection.vendor != "postgresql",
    reason="SQLite has no connections that a server could cut",
)
def test_a_database_that_cuts_all_connections_is_survived(tmp_path):
    with cluster(tmp_path) as started:
        before = started.alive()
        begun(run := slow(1.5))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert cursor.fetchone()[0] >= 3
        ended(run, slow(), slow())
        assert started.alive() == before


def test_the_stock_command_of_django_q_works_in_this_project(tmp_path):
    with cluster(tmp_path, "qcluster") as started:
        ended(*(slow() for _ in range(4)))
        victim_run = slow(1.0)
        begun(victim_run)
        ended(victim_run)
        started.main.send_signal(signal.SIGTERM)
        assert started.main.wait(20) == 0
