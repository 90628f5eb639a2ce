"""What the metrics read: exact where there is little, counted up to a limit where there
is much, and read once for all scrapers of a few seconds.
"""

import contextlib
from datetime import timedelta
from threading import Event, Thread

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals.models import Notice
from checkpoints.db import counts
from checkpoints.models import Job
from orchestrator.management.reference_data import ReferenceData
from orchestrator.metrics import readings
from tests.support.read_growth import grown_reads
from tests.support.rows import a_request, a_run, a_worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_queue_is_read_by_graph() -> None:
    now = timezone.now()
    a_run(status="queued", graph="a", due_at=now - timedelta(seconds=90))
    a_run(status="waiting", graph="a", due_at=now - timedelta(seconds=30))
    a_run(status="queued", graph="a", fingerprint="f", priority=3)
    a_run(status="queued", graph="b", due_at=now + timedelta(hours=1))
    a_run(status="paused", graph="c")
    read = readings.read()
    [due] = read.queue.graphs
    assert due.graph == "a"
    assert due.runs == 3
    assert 90 <= due.oldest_seconds < 120
    assert 90 <= read.oldest_due_seconds < 120
    assert read.queue.is_cut is False


def test_the_age_of_the_queue_is_that_of_a_graph_beyond_those_that_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = timezone.now()
    for graph in ("a", "b", "c"):
        a_run(status="queued", graph=graph, due_at=now)
    a_run(status="queued", graph="z", due_at=now - timedelta(seconds=90))
    monkeypatch.setattr(readings, "MOST_KINDS", 1)
    read = readings.read()
    assert [due.graph for due in read.queue.graphs] == ["a", "b"]
    assert read.queue.is_cut is True
    assert 90 <= read.oldest_due_seconds < 120


def test_runs_are_counted_by_status_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(4):
        a_run(status="failed")
    a_run(status="running")
    assert readings.read().runs["failed"] == 4
    monkeypatch.setattr(readings, "MOST_COUNTED", 2)
    read = readings.read()
    assert read.runs["failed"] == 3
    assert read.runs["running"] == 1
    assert read.runs["tampered"] == 0


def test_what_waits_for_people_and_for_services_is_counted() -> None:
    now = timezone.now()
    run = a_run()
    a_request(run)
    a_request(run, deadline=now - timedelta(minutes=1))
    a_request(run, deadline=now - timedelta(minutes=1), status="settled")
    Notice.objects.all().delete()
    Notice.objects.create(event="test", at=now - timedelta(minutes=2))
    Notice.objects.create(event="test", at=now, passed_on_at=now)
    Job.objects.create(kind="nothing", due_at=now, created_at=now)
    read = readings.read()
    assert read.counts == {
        "requests_open": 2,
        "requests_overdue": 1,
        "jobs_due": 1,
        "notices_waiting": 1,
        "webhooks_waiting": 0,
        "mails_waiting": 0,
    }
    assert 120 <= read.oldest_notice_seconds < 150


def test_clusters_are_those_of_the_last_minutes() -> None:
    now = timezone.now()
    alive = a_worker(sums={"checkpoints": 7})
    ended = a_worker(stopped_at=now)
    a_worker(heartbeat_at=now - timedelta(hours=1))
    read = readings.read()
    assert read.alive == 1
    assert {cluster["id"] for cluster in read.workers} == {alive.id, ended.id}


def test_the_clusters_that_are_shown_are_the_same_at_each_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = timezone.now()
    a_worker(stopped_at=now)
    first = a_worker(heartbeat_at=now - timedelta(seconds=2))
    second = a_worker(heartbeat_at=now - timedelta(seconds=1), draining=True)
    a_worker()
    monkeypatch.setattr(readings, "MOST_WORKERS", 2)
    read = readings.read()
    assert [cluster["id"] for cluster in read.workers] == [first.id, second.id]
    assert read.workers_left_out == 2


def test_a_second_scraper_reads_nothing_again() -> None:
    first = readings.kept_readings()
    with CaptureQueriesContext(connection) as captured:
        assert readings.kept_readings() is first
    assert len(captured) == 0


def test_readings_that_are_old_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = readings.kept_readings()
    monkeypatch.setattr(readings, "KEPT_SECONDS", 0.0)
    readings.forget_readings()
    second = readings.kept_readings()
    assert second is not first
    assert readings.kept_readings() is not second


def test_a_reading_that_fails_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def fail(**limits: int) -> None:
        calls.append(limits)
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(readings.due_counts, "due_by_graph", fail)
        with pytest.raises(RuntimeError):
            readings.kept_readings()
        with pytest.raises(readings.ReadingsUnavailable):
            readings.kept_readings()
    assert len(calls) == 1
    # What was kept is over.
    readings.forget_readings()
    assert readings.kept_readings().alive == 0


def test_a_reading_that_hangs_does_not_hold_up_the_next_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = Event()
    may_end = Event()

    def hang() -> None:
        begun.set()
        may_end.wait(60)

    monkeypatch.setattr(readings, "read", hang)
    monkeypatch.setattr(readings, "WAIT_SECONDS", 0.01)

    def scrape() -> None:
        with contextlib.suppress(readings.ReadingsUnavailable):
            readings.kept_readings()

    hung = Thread(target=scrape)
    hung.start()
    try:
        assert begun.wait(60)
        with pytest.raises(readings.ReadingsUnavailable):
            readings.kept_readings()
    finally:
        may_end.set()
        hung.join(60)


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has no limit for a statement"
)
def test_no_statement_of_a_reading_may_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sleep(**limits: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(readings.due_counts, "due_by_graph", sleep)
    monkeypatch.setattr(readings, "STATEMENT_SECONDS", 0.5)
    with pytest.raises(OperationalError):
        readings.read()
    assert _statement_timeout() == "0"


def _statement_timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def test_readings_cost_no_more_beside_ten_times_as_many_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # There are more than are counted from the beginning, so that each count has its
    # full cost.
    monkeypatch.setattr(counts, "MOST_COUNTED", 5)
    monkeypatch.setattr(readings, "MOST_COUNTED", 5)
    data = ReferenceData()
    list(data.grow(400))
    a_worker()
    assert grown_reads(data, {"metrics": readings.read}, many=4_000) == {}
