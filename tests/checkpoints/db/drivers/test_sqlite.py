"""A transaction past Django's cursors: as whole, as true and as loud as through them."""

import signal
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.transaction import TransactionManagementError

from checkpoints.db import drivers

pytestmark = pytest.mark.django_db(transaction=True)
on_sqlite = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL's statements go another way"
)

FENCE = "UPDATE fence SET seen = seen + %s WHERE id = %s"
INSERT = "INSERT INTO sent VALUES (%s, %s, %s, %s, %s) RETURNING 'a%%'"
SLOW = (
    "INSERT INTO sent (id) WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1"
    " FROM c WHERE n < 2000000)"
    " SELECT 1 FROM c WHERE n = 2000000"
)


@pytest.fixture
def _tables(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE fence (id integer PRIMARY KEY, seen integer)")
        cursor.execute("INSERT INTO fence VALUES (1, 0)")
        cursor.execute(
            "CREATE TABLE sent (id integer PRIMARY KEY, body text, data blob, yes bool,"
            " ref integer REFERENCES fence (id) DEFERRABLE INITIALLY DEFERRED)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE sent")
        cursor.execute("DROP TABLE fence")


def send(*content: tuple[str, list[Any]]) -> int:
    from checkpoints.db.drivers import sqlite

    return sqlite.send(connection, content)()


def seen() -> tuple[int, list[Any]]:
    """Return the rows as another connection sees them: only what was committed."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT seen FROM fence")
            (number,) = cursor.fetchone()
            cursor.execute("SELECT * FROM sent ORDER BY id")
            return number, list(cursor.fetchall())
    finally:
        other.close()


@on_sqlite
@pytest.mark.usefixtures("_tables")
class TestOnSqlite:
    def test_what_follows_a_fence_that_met_is_committed_with_it(self) -> None:
        rows = [[1, "ä%s ?", b"\0\xff", True, 1], [2, None, None, None, None]]
        assert send((FENCE, [2, 1]), *((INSERT, row) for row in rows)) == 1
        assert seen() == (
            2,
            [(1, "ä%s ?", b"\0\xff", True, 1), (2, None, None, None, None)],
        )
        assert not connection.connection.in_transaction

    def test_a_percent_sign_is_written_as_django_has_it(self) -> None:
        send(
            (FENCE, [1, 1]),
            ("INSERT INTO sent (id, body) VALUES (%s, '100%% %%s')", [1]),
        )
        assert seen()[1][0][1] == "100% %s"

    def test_it_says_how_many_rows_the_fence_met(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO fence VALUES (2, 0), (3, 0)")
        assert send(("UPDATE fence SET seen = %s WHERE id > %s", [7, 1])) == 2

    def test_what_does_not_say_how_many_it_met_has_met_none(self) -> None:
        counted = "WITH one AS (SELECT 1) UPDATE fence SET seen = 5"
        assert send((counted, []), (INSERT, [1, "", b"", True, 1])) <= 0
        assert seen() == (0, [])

    def test_a_full_disk_is_an_operational_error_and_nothing_is_written(self) -> None:
        connection.connection.execute(
            "PRAGMA max_page_count = 1"
        )  # as many as there are
        # Other tests leave free pages in the file.
        words = ("freelist_count", "page_size")
        (free,), (size,) = (
            connection.connection.execute(f"PRAGMA {word}").fetchone() for word in words
        )
        with pytest.raises(OperationalError, match="full"):
            send(
                (FENCE, [1, 1]),
                (INSERT, [1, "", b"x" * (free * size + 1_000_000), True, 1]),
            )
        assert not connection.connection.in_transaction
        assert seen() == (0, [])
        connection.connection.execute("PRAGMA max_page_count = 1000000")
        assert send((FENCE, [1, 1])) == 1

    def test_a_transaction_that_somebody_else_began_is_left_to_him(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(INSERT, [1, "theirs", b"", True, 1])
            with pytest.raises(
                TransactionManagementError, match="somebody began a transaction"
            ):
                send((FENCE, [1, 1]))
            cursor.execute("COMMIT")
        assert [row[1] for row in seen()[1]] == ["theirs"]

    def test_an_interrupt_while_a_statement_fails_leaves_no_transaction_open(
        self,
    ) -> None:
        send((FENCE, [1, 1]), (INSERT, [1, "", b"", True, 1]))
        was = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                send((FENCE, [1, 1]), (SLOW, []))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, was)
        assert not connection.connection.in_transaction
        assert seen()[0] == 1

    def test_nothing_follows_a_fence_that_did_not_meet(self) -> None:
        row = (INSERT, [1, "", b"", True, 1])
        send((FENCE, [1, 1]), row)
        assert send((FENCE, [2, 9]), row) == 0, "a key that is taken was tried"
        assert seen() == (1, [(1, "", b"", True, 1)])
        assert not connection.connection.in_transaction

    @pytest.mark.parametrize("second", [[1, "", b"", True, 1], [2, "", b"", True, 77]])
    def test_an_error_is_djangos_and_nothing_is_written(
        self, second: list[Any]
    ) -> None:
        """A key that is taken, found at the statement; a reference into nothing, found
        at the commit.
        """
        send((FENCE, [1, 1]), (INSERT, [1, "", b"", True, 1]))
        with pytest.raises(IntegrityError) as caught:
            send((FENCE, [1, 1]), (INSERT, [3, "", b"", True, 1]), (INSERT, second))
        assert (
            getattr(caught.value.__cause__, "sqlite_errorcode", 0) & 0xFF
            == sqlite3.SQLITE_CONSTRAINT
        )
        assert seen() == (1, [(1, "", b"", True, 1)])
        assert not connection.connection.in_transaction
        assert send((FENCE, [1, 1])) == 1

    def test_a_database_that_is_locked_is_an_operational_error(self) -> None:
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("BEGIN IMMEDIATE")
            connection.connection.execute("PRAGMA busy_timeout = 20")
            with pytest.raises(OperationalError, match="locked"):
                send((FENCE, [1, 1]))
            with other.cursor() as cursor:
                cursor.execute("ROLLBACK")
        finally:
            other.close()
        assert send((FENCE, [1, 1])) == 1
        connection.close()

    @pytest.mark.parametrize("moment", ["BEGIN IMMEDIATE", "UPDATE", "INSERT"])
    def test_what_interrupts_it_leaves_no_transaction_open(
        self, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from checkpoints.db.drivers import sqlite

        do = sqlite._do

        def interrupted(now: Any, text: str, params: Any = ()) -> Any:
            done = do(now, text, params)
            if text.startswith(moment):
                raise KeyboardInterrupt
            return done

        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "_do", interrupted)
            with pytest.raises(KeyboardInterrupt):
                send((FENCE, [1, 1]), (INSERT, [1, "", b"", True, 1]))
        assert not connection.connection.in_transaction
        assert seen() == (0, [])


def test_it_is_free_only_without_a_transaction_and_without_watchers() -> None:
    assert drivers.is_free(connection)
    with transaction.atomic():
        assert not drivers.is_free(connection)
    with connection.execute_wrapper(lambda execute, *rest: execute(*rest)):
        assert not drivers.is_free(connection)
    connection.force_debug_cursor = True
    try:
        assert not drivers.is_free(connection)
    finally:
        connection.force_debug_cursor = False
    assert drivers.is_free(connection)


def test_a_connection_that_was_closed_is_opened() -> None:
    connection.close()
    assert drivers.is_free(connection)
    assert connection.connection is not None


def test_another_threads_connection_is_refused() -> None:
    def theirs() -> None:
        with pytest.raises(DatabaseError, match="thread"):
            drivers.is_free(ours)
        refused.append(True)

    ours: Any = connections["default"]
    refused: list[bool] = []
    thread = threading.Thread(target=theirs)
    thread.start()
    thread.join()
    assert refused


def test_a_database_without_a_driver_here_goes_the_usual_way() -> None:
    assert drivers.of("oracle") is None
