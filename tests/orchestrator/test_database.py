"""The run is on the database that was asked for, with the options that the promises
need.
"""

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext


@pytest.fixture
def on_sqlite(transactional_db: None) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about an option that only SQLite has")


@pytest.mark.django_db
def test_the_tests_run_on_the_database_that_was_asked_for(
    request: pytest.FixtureRequest,
) -> None:
    assert connection.vendor == request.config.option.database


@pytest.mark.usefixtures("on_sqlite")
def test_sqlite_keeps_every_commit_through_a_power_cut_and_lets_readers_pass() -> None:
    with connection.cursor() as cursor:
        settings = [
            cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
    assert settings == ["wal", 2]


@pytest.mark.usefixtures("on_sqlite")
def test_a_transaction_on_sqlite_takes_the_write_lock_when_it_begins() -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        pass
    assert captured[0]["sql"] == "BEGIN IMMEDIATE"
