"""Which workers are there, by the database's clock alone."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.models import Worker
from checkpoints.queue import workers
from tests.support.rows import a_worker

pytestmark = pytest.mark.django_db


def test_a_worker_that_ends_stopped_or_is_silent_has_no_version() -> None:
    a_worker(fingerprints=["one", "two"])
    a_worker(fingerprints=["two", "three"], draining=True)
    a_worker(fingerprints=["four"], stopped_at=timezone.now())
    a_worker(fingerprints=["five"], heartbeat_at=timezone.now() - timedelta(days=1))
    assert workers.live_fingerprints() == {"one", "two"}
    assert workers.any_can_run("one") is True
    assert workers.any_can_run("three") is False


def test_whether_a_worker_lives_and_since_when_none_does_is_one_query() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert workers.silence() == workers.Silence(since=None)
        silent = a_worker(heartbeat_at=timezone.now() - timedelta(days=1))
        a_worker(heartbeat_at=timezone.now() - timedelta(days=2))
        assert workers.silence() == workers.Silence(since=silent.heartbeat_at)
        a_worker()
        # It lives although another has written later.
        a_worker(draining=True)
        assert workers.silence() is None
    selects = [query for query in queries if query["sql"].startswith("SELECT")]
    assert len(selects) == 3


@pytest.mark.skipif(
    connection.vendor != "postgresql",
    reason="SQLite lives on one host, whose clock all its processes share",
)
@pytest.mark.parametrize("off", [-3600, 3600])
def test_a_host_whose_clock_is_wrong_sees_the_same_workers(
    off: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = a_worker(fingerprints=["live"])
    silent = a_worker(fingerprints=["silent"])
    Worker.objects.filter(id=silent.id).update(
        heartbeat_at=live.heartbeat_at - timedelta(seconds=1800)
    )
    moment = timezone.now() + timedelta(seconds=off)
    monkeypatch.setattr(timezone, "now", lambda: moment)
    assert workers.live_fingerprints() == {"live"}
    assert workers.any_alive()
