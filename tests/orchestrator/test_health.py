"""Probes tell whether the installation works, to everybody, and tell no names."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from approvals import list_columns
from orchestrator import health
from tests.support.rows import a_run, a_worker


def test_health_needs_nothing(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_a_web_process_is_ready_with_its_database_and_migrations_whether_or_not_a_worker_lives(
    client: Client,
) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "database": True,
        "migrations": True,
        "worker": False,
        "oldest_due_seconds": None,
    }


@pytest.mark.django_db
def test_a_web_process_whose_migrations_wait_is_not_ready(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "migrated", lambda: False)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"


@pytest.mark.django_db
def test_a_web_process_that_starts_while_lists_would_lack_rows_is_not_ready(
    client: Client,
) -> None:
    list_columns.remove_triggers()
    health._migrated.cache_clear()
    try:
        assert client.get("/readyz").status_code == 503
    finally:
        call_command("migrate", verbosity=0)
    assert client.get("/readyz").status_code == 200


@pytest.mark.django_db
def test_a_web_process_whose_database_does_not_answer_is_not_ready(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> bool:
        raise OperationalError("gone")

    monkeypatch.setattr(health.workers, "any_alive", lost)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["database"] is False


@pytest.mark.django_db
def test_workers_are_ready_where_one_lives(client: Client) -> None:
    answer = client.get("/readyz/workers")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"
    a_worker()
    answer = client.get("/readyz/workers")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert "secret-host" not in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("gone", ["silent", "stopped", "draining"])
def test_a_worker_that_is_silent_or_stopping_does_not_count(
    client: Client, gone: str
) -> None:
    now = timezone.now()
    columns = {
        "silent": {"heartbeat_at": now - timedelta(minutes=1)},
        "stopped": {"stopped_at": now},
        "draining": {"draining": True},
    }
    a_worker(**columns[gone])
    assert client.get("/readyz/workers").status_code == 503


@pytest.mark.django_db
def test_ready_tells_for_how_long_the_oldest_run_has_waited(client: Client) -> None:
    now = timezone.now()
    a_run(status="queued", due_at=now - timedelta(seconds=90))
    a_run(status="queued", due_at=now + timedelta(hours=1))
    a_run(status="paused", due_at=now - timedelta(days=1))
    assert 90 <= client.get("/readyz").json()["oldest_due_seconds"] < 100
