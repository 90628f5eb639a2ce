"""A statement that is sent without waiting: its values arrive as Django's would, its
errors are Django's.
"""

import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from checkpoints.db import drivers
from tests.support.processes import until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="only PostgreSQL takes a statement without waiting",
    ),
]

INSERT = (
    "INSERT INTO sent SELECT * FROM (VALUES (%s::integer, %s::smallint, %s::bigint,"
    " %s::text, %s::bytea, %s::uuid,"
    " %s::timestamp with time zone, %s::boolean, %s::jsonb)) AS given WHERE 'a%%' LIKE 'a%%'"
)
ROWS: list[list[Any]] = [
    [
        1,
        2,
        3,
        "text",
        b"\0\xff",
        UUID(int=7),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        True,
        '{"a": "50 %s"}',
    ],
    [
        2,
        32767,
        2**53,
        "",
        b"",
        UUID(int=2**128 - 1),
        datetime(1970, 1, 1, tzinfo=UTC),
        False,
        "[]",
    ],
    [
        -3,
        -32768,
        -(2**53),
        "$1 %s %% '",
        b"'",
        UUID(int=0),
        datetime(9999, 12, 31, tzinfo=UTC),
        True,
        "null",
    ],
    [
        2**31 - 1,
        0,
        2**63 - 1,
        "ä€𝄞",
        b"\\x00",
        UUID(int=1),
        datetime(2026, 1, 2, tzinfo=UTC),
        True,
        "1",
    ],
    [5, None, None, None, None, None, None, None, None],
]


@pytest.fixture(autouse=True)
def table(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE sent (id integer PRIMARY KEY, small smallint, big bigint,"
            " body text, data bytea, ref uuid,"
            " at timestamp with time zone, yes boolean, doc jsonb)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE sent")


def send(text: str, params: list[Any]) -> Any:
    from checkpoints.db.drivers import postgresql as driver

    return driver.send(connection, [(text, params)])


def rows() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM sent ORDER BY id")
        return list(cursor.fetchall())


@pytest.mark.parametrize("threshold", [1, None])
def test_values_arrive_as_through_djangos_cursor(threshold: int | None) -> None:
    connection.connection.prepare_threshold = threshold
    assert [send(INSERT, row)() for row in ROWS] == [1] * len(ROWS)
    sent = rows()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sent")
        for row in ROWS:
            cursor.execute(INSERT, row)
    assert sent == rows()
    assert [row[0] for row in sent] == sorted(row[0] for row in ROWS)


def test_it_is_committed_whether_or_not_anybody_asks() -> None:
    answer = send(INSERT, ROWS[0])
    assert answer() == 1
    transaction.set_autocommit(False)
    transaction.rollback()
    transaction.set_autocommit(True)
    assert len(rows()) == 1


def test_it_says_how_many_rows_it_met() -> None:
    for row in ROWS[:3]:
        send(INSERT, row)()
    assert send("UPDATE sent SET big = big + %s WHERE id > %s", [1, 0])() == 2
    assert send("UPDATE sent SET big = 0 WHERE id = %s", [99])() == 0
    assert (
        send("WITH gone AS (DELETE FROM sent RETURNING id) SELECT 1 FROM gone", [])()
        == 3
    )


def test_an_error_is_djangos_and_the_connection_goes_on() -> None:
    send(INSERT, ROWS[0])()
    answer = send(INSERT, ROWS[0])
    with pytest.raises(IntegrityError) as caught:
        answer()
    assert getattr(caught.value.__cause__, "sqlstate", None) == "23505"
    assert len(rows()) == 1
    with pytest.raises(Exception, match="no_such_table"):
        send("DELETE FROM no_such_table", [])
    assert send(INSERT, ROWS[1])() == 1


def test_a_connection_that_is_cut_is_an_operational_error_and_the_next_one_prepares_anew() -> (
    None
):
    send(INSERT, ROWS[0])()
    pid = connection.connection.info.backend_pid
    cut = connection.copy()
    with cut.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    cut.close()
    with pytest.raises(OperationalError):
        send(INSERT, ROWS[1])()
    connection.close()
    connection.ensure_connection()
    assert send(INSERT, ROWS[1])() == 1


def test_more_statements_than_a_connection_keeps_are_sent_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from checkpoints.db.drivers import postgresql as driver

    connection.close()
    connection.ensure_connection()
    monkeypatch.setattr(driver, "MOST_PREPARED", 3)
    for n in range(6):
        assert send(f"INSERT INTO sent (id) VALUES ({n} + %s)", [0])() == 1  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'countersign%%'"
        )
        assert cursor.fetchone() == (3,)


def test_a_large_value_is_sent_whole() -> None:
    body = "x" * 20_000_000
    assert send("INSERT INTO sent (id, body) VALUES (%s, %s)", [1, body])() == 1
    assert rows()[0][3] == body


def test_to_close_the_connection_is_to_wait_and_whoever_comes_next_gets_another() -> (
    None
):
    answer = send(INSERT, ROWS[0])
    connection.close()
    assert len(rows()) == 1
    assert answer() == 1


def test_a_check_of_the_connection_that_is_due_does_not_take_it_for_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    connection.close()
    connection.ensure_connection()
    connection.close_if_unusable_or_obsolete()  # as at the end of a request
    assert drivers.is_free(connection)
    answer = send(INSERT, ROWS[0])
    ours = connection.connection
    assert len(rows()) == 1
    assert connection.connection is ours
    assert answer() == 1
    connection.close()


def test_an_interrupt_is_raised_where_somebody_waits_without_knowing() -> None:
    answer = send("SELECT pg_sleep(%s)", [5])
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    # Whoever ran in this process before may have left a handler of his own.
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            rows()
    finally:
        signal.signal(signal.SIGINT, was)
    with pytest.raises(KeyboardInterrupt):
        answer()
    assert rows() == []


def test_a_statement_larger_than_the_socket_takes_is_committed_while_nobody_waits_for_it() -> (
    None
):
    other = connection.copy()
    answer = send(INSERT, [1, 2, 3, "x" * 12_000_000, None, None, None, None, None])
    try:
        until(lambda: _count(other) == 1, what="the row, seen from another connection")
    finally:
        other.close()
    assert answer() == 1


def test_after_a_rollback_drops_prepared_statements_the_next_commit_still_succeeds() -> (
    None
):
    assert send(INSERT, ROWS[0])() == 1
    for _ in range(2 + (connection.connection.prepare_threshold or 0)):
        rows()  # until psycopg has prepared a statement of its own, too
    with transaction.atomic():
        rows()
        transaction.set_rollback(True)
    rows()
    assert [send(INSERT, row)() for row in ROWS[1:3]] == [1, 1]
    with pytest.raises(IntegrityError):
        send(INSERT, ROWS[0])()
    assert len(rows()) == 3


def _count(other: Any) -> int:
    with other.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sent")
        return int(cursor.fetchone()[0])


def test_a_concurrent_probe_sees_an_unusable_connection_and_nothing_is_lost() -> None:
    """A limit: `is_usable` goes to the connection of the driver itself, which has a
    statement on its way.
    """
    answer = send(INSERT, ROWS[0])
    assert not connection.is_usable()
    assert answer() == 1
    assert connection.is_usable()
    assert len(rows()) == 1


def test_a_probe_that_closes_what_it_finds_unusable_waits_for_the_end_first() -> None:
    connection.ensure_connection()
    connection.connection.prepare_threshold = None
    answer = send("INSERT INTO sent (id) SELECT %s::integer FROM pg_sleep(0.2)", [1])
    connection.close_at = (
        None  # a web process would give the connection back here, whatever its state
    )
    # asks for the mode of commits first, and that waits
    connection.close_if_unusable_or_obsolete()
    assert connection.is_usable()
    assert answer() == 1
    answer = send("INSERT INTO sent (id) SELECT %s::integer FROM pg_sleep(0.2)", [2])
    assert not connection.is_usable()
    connection.close()
    assert answer() == 1
    assert [row[0] for row in rows()] == [1, 2]


def test_who_goes_past_django_meanwhile_is_refused_and_nothing_is_lost() -> None:
    """A limit: what is said to `connection.connection` itself waits for nothing, and is
    refused meanwhile.
    """
    answer = send(INSERT, ROWS[0])
    raw = connection.connection
    with pytest.raises(
        psycopg.OperationalError, match="another command is already in progress"
    ):
        raw.execute("SELECT 1")
    assert answer() == 1
    assert raw.execute("SELECT count(*) FROM sent").fetchone() == (1,)
