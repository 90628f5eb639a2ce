"""The watchdog looks at the database for a short time only: its process shows that the
worker is alive.
"""

import time

import pytest
from django.db import connection

from orchestrator.worker import shared_state, watchdog
from orchestrator.worker.shared_state import SharedState
from orchestrator.worker.watchdog import SILENCE_SECONDS, Watchdog
from tests.support.clusters import slow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def with_silent_pusher(monkeypatch: pytest.MonkeyPatch) -> Watchdog:
    """The watchdog of a cluster whose pusher is silent, while a slot is free."""
    state = SharedState(1)
    later = time.monotonic() + SILENCE_SECONDS + 1
    monkeypatch.setattr(shared_state.time, "monotonic", lambda: later)
    state.sentinel_is_well()
    return Watchdog(state)


def test_a_pusher_that_leaves_due_work_lying_is_an_alarm(
    with_silent_pusher: Watchdog,
) -> None:
    slow()
    alarm = with_silent_pusher.alarm()
    assert alarm is not None
    assert "nothing was claimed" in alarm


@pytest.mark.skipif(
    connection.vendor != "postgresql",
    reason="SQLite has no locks that readers wait for",
)
def test_a_database_that_does_not_answer_soon_is_no_alarm(
    with_silent_pusher: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow()
    monkeypatch.setattr(watchdog, "ANSWER_SECONDS", 2.0)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            # As a migration does.
            cursor.execute("LOCK TABLE checkpoints_run IN ACCESS EXCLUSIVE MODE")
        assert with_silent_pusher.alarm() is None
    finally:
        other.close()
    assert watchdog._work_is_due()
