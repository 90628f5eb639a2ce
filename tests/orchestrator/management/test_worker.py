"""`manage.py worker --alive`, by which a container says whether its worker lives."""

import io
import socket
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError
from django.utils import timezone

from checkpoints.queue import workers
from tests.support.rows import a_worker


def _alive() -> str:
    out = io.StringIO()
    call_command("worker", "--alive", stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db
def test_a_host_with_a_heartbeat_is_alive() -> None:
    a_worker(host=socket.gethostname())
    assert _alive() == "A worker of this host is alive."


@pytest.mark.django_db
def test_a_host_whose_workers_are_silent_is_not() -> None:
    a_worker(host="another")
    a_worker(host=socket.gethostname(), heartbeat_at=timezone.now() - timedelta(days=1))
    with pytest.raises(CommandError, match="No worker of this host"):
        _alive()


def _fails_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(host: str) -> bool:
        raise error

    monkeypatch.setattr(workers, "any_alive_on", fail)


def test_a_worker_is_not_blamed_for_a_database_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fails_with(OperationalError("connection refused"), monkeypatch)
    assert _alive().startswith("The database does not answer")


def test_any_other_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ProgrammingError("no such table")
    error.__cause__ = Exception()
    _fails_with(error, monkeypatch)
    with pytest.raises(ProgrammingError):
        _alive()
