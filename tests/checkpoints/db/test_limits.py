"""Whoever freezes inside a transaction keeps its locks for a while only, and a person
waits for one a short time.
"""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.backends.signals import connection_created
from psycopg.errors import LockNotAvailable

from checkpoints.db import limits
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from orchestrator import runs
from tests.races.meeting import Thread
from tests.support.clusters import slow
from tests.support.statements import counted

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="on SQLite no server could end a transaction",
    ),
]
NAMES = ("idle_in_transaction_session_timeout", "lock_timeout")


@pytest.fixture
def limited(settings: Any) -> Iterator[None]:
    """Connections of this process as those of a worker with a lease of three seconds."""
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "LEASE_SECONDS": 3.0}
    before = dict(connection.settings_dict["OPTIONS"])
    connection.close()
    limits.limit_connections()
    yield
    connection_created.disconnect(dispatch_uid="checkpoints.db.limits")
    connection.settings_dict["OPTIONS"].clear()
    connection.settings_dict["OPTIONS"].update(before)
    connection.close()


def _setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting FROM pg_settings WHERE name = %s", [name])
        return str(cursor.fetchone()[0])


def test_each_connection_of_a_worker_ends_idle_transactions_before_the_lease_does(
    limited: None,
) -> None:
    assert _setting("idle_in_transaction_session_timeout") == "2000"
    assert (
        Thread(lambda: _setting("idle_in_transaction_session_timeout")).outcome()
        == "2000"
    )
    link = connection.copy()
    with link.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("2s",)
    link.close()


def test_a_worker_notices_a_server_that_vanished(limited: None) -> None:
    parameters = connection.get_connection_params()
    wanted = {
        "keepalives": 1,
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": 2,
    }
    assert {name: parameters[name] for name in wanted} == wanted
    assert parameters["tcp_user_timeout"] == 3000
    connection.ensure_connection()
    assert "tcp_user_timeout=3000" in connection.connection.info.dsn


def test_what_the_settings_or_the_server_limit_more_strictly_stays(
    limited: None,
) -> None:
    connection.close()
    connection.settings_dict["OPTIONS"] |= {
        "tcp_user_timeout": 7,
        "options": "-c idle_in_transaction_session_timeout=9",
    }
    limits.limit_connections()
    assert connection.get_connection_params()["tcp_user_timeout"] == 7
    assert _setting("idle_in_transaction_session_timeout") == "9"


def test_a_transaction_that_is_idle_too_long_is_ended_and_its_locks_are_free(
    limited: None,
) -> None:
    run = slow()

    def frozen() -> None:
        with transaction.atomic():
            Run.objects.select_for_update().get(id=run.id)
            time.sleep(3.0)
            Run.objects.filter(id=run.id).update(label="late")

    begun = time.monotonic()
    thread = Thread(frozen)
    time.sleep(0.5)
    with transaction.atomic():
        locked_run.lock_run(run.id)
    assert 1.0 < time.monotonic() - begun < 2.9
    with pytest.raises(Exception, match="idle-in-transaction|closed"):
        thread.outcome()
    run.refresh_from_db()
    assert run.label != "late"


def test_an_act_of_a_person_waits_for_a_lock_no_longer_than_a_page_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LOCK_SECONDS", 0.3)
    run = slow()
    with transaction.atomic():
        locked_run.lock_run(run.id)
        begun = time.monotonic()
        with pytest.raises(OperationalError) as refused:
            Thread(lambda: runs.cancel(run.id)).outcome()
    assert isinstance(refused.value.__cause__, LockNotAvailable)
    assert 0.2 < time.monotonic() - begun < 2.0
    assert runs.cancel(run.id).status == "cancelled"


def test_the_limits_of_an_act_cost_no_statement_and_end_with_its_transaction() -> None:
    run = slow()
    before = [_setting(name) for name in NAMES]
    with transaction.atomic():
        with counted() as sent:
            locked_run.lock_run(run.id)
        assert len(sent) == 1
        assert [_setting(name) for name in NAMES] == ["10000", "5000"]
    assert [_setting(name) for name in NAMES] == before


def test_a_server_that_lets_nobody_in_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits.require_answer(limits.ANSWER_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        monkeypatch.setitem(
            connection.settings_dict, "PORT", str(silent.getsockname()[1])
        )
        begun = time.monotonic()
        with pytest.raises(OperationalError, match="timeout"):
            limits.require_answer(2.0)
    # Without a limit it would be two minutes.
    assert time.monotonic() - begun < 30
    assert "connect_timeout" not in connection.settings_dict["OPTIONS"]
